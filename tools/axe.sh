#!/bin/sh
# Fetches axe-core, with which a test looks at the pages' accessibility, to build/axe-core/.
# Without npm, or without a way to its registry, that test is skipped by the file's name.
set -eu
version=4.14.1
digest=29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c
file=build/axe-core/axe.min.js

is_it() { [ -f "$1" ] && echo "$digest  $1" | sha256sum --check --status; }

! is_it $file || exit 0
command -v npm >/dev/null || exit 0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm pack --silent --fetch-retries 1 --fetch-timeout 60000 --pack-destination "$folder" \
    "axe-core@$version" >/dev/null 2>&1 || {
    echo "axe-core $version could not be fetched: the test of the pages' accessibility is skipped" >&2
    exit 0
}
tar -xzOf "$folder/axe-core-$version.tgz" package/axe.min.js >"$folder/axe.min.js"
is_it "$folder/axe.min.js" || {
    echo "axe-core $version is not the one that this repository knows (SHA-256 $digest)" >&2
    exit 1
}
mkdir -p "${file%/*}"
mv "$folder/axe.min.js" $file
