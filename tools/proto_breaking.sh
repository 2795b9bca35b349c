#!/bin/sh
# Compares proto/ with the contracts of the last release: its clients must go on working.
# usage: tools/proto_breaking.sh BIN
set -eu
"$1/buf" breaking --against proto/released.binpb
echo "proto/ breaks nothing of proto/released.binpb"
