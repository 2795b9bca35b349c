#!/bin/sh
# Generates the contracts anew beside the committed ones and compares them, both ways.
# usage: tools/proto_check.sh BIN
set -eu
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
sh tools/proto.sh "$1" "$new"

list() { (cd "$1" && find podium -path '*/v1/*_pb2*.py*' ! -path '*/__pycache__/*' | LC_ALL=C sort); }

status=0
for file in $( (list libs; list "$new") | LC_ALL=C sort -u); do
    diff -u "libs/$file" "$new/$file" >/dev/null 2>&1 && continue
    echo "not what proto/ gives: libs/$file" >&2
    status=1
done
[ "$status" = 0 ] && echo "generated code is what proto/ gives" || echo "run: make proto" >&2
exit "$status"
