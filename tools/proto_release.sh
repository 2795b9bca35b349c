#!/bin/sh
# Writes the image that tools/proto_breaking.sh compares with: a release does, once.
# usage: tools/proto_release.sh BIN
set -eu
"$1/buf" build --exclude-source-info -o proto/released.binpb
echo "proto/released.binpb is what proto/ says now"
