#!/bin/sh
# Compares proto/ with the last tag: a released client must go on working.
# usage: tools/proto_breaking.sh BIN
set -eu
if ! tag=$(git describe --tags --abbrev=0 2>/dev/null); then
    echo "no git tag yet: nothing that proto/ could break"
    exit 0
fi
"$1/buf" breaking --against ".git#tag=$tag"
echo "proto/ breaks nothing since $tag"
