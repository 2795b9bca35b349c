#!/bin/sh
# Generates the Python contracts. The proto root is the package root, so no import needs patching.
# usage: tools/proto.sh BIN OUT
set -eu
bin=$(cd "$1" && pwd)
out=$2

files=$(find proto -name '*.proto' | LC_ALL=C sort)
# shellcheck disable=SC2086  # a list of files
PATH="$bin:$PATH" "$bin/python" -m grpc_tools.protoc -I proto \
    --python_out="$out" --grpc_python_out="$out" \
    --mypy_out="quiet:$out" --mypy_grpc_out="quiet:$out" $files

for file in $files; do
    grep -q '^service ' "$file" && continue
    stem=${file#proto/}
    stem=${stem%.proto}
    rm -f "$out/${stem}_pb2_grpc.py" "$out/${stem}_pb2_grpc.pyi"
done
