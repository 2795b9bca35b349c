#!/bin/sh
# Builds the images and tests the chart in a real cluster: the one of the current kubeconfig, or, with
# PODIUM_CLUSTER_TOOL, one that this script starts and stops. With the first, PODIUM_E2E_VALUES names
# a values file that says where its nodes find the images.
# usage: tools/e2e.sh BIN [PYTEST ARGUMENT...]
#        tools/e2e.sh BIN prepare    what does not need the node to itself; leaves the cluster for the other
set -eu
bin=$1
shift
prepared=build/e2e-prepared
beside=build/e2e-beside

prepare() {
    archives=build/images
    "$bin/python" tools/images.py
    database=$archives/podium-e2e-postgres-15.tar
    if [ ! -e "$database" ] || [ tests/e2e/postgres.Dockerfile -nt "$database" ]; then
        "$PODIUM_CLUSTER_TOOL" image -t podium-e2e/postgres:15 \
            -f tests/e2e/postgres.Dockerfile tests/e2e "$database" >/dev/null 2>&1
    fi
    # In two steps: a pipe would hide that it did not start.
    started=$("$PODIUM_CLUSTER_TOOL" up)
    eval "$(echo "$started" | grep '^export')"
    # They wait in namespaces of their own, with the image that this cluster comes with: while the
    # others are loaded, unless single tests are asked for. The installation has the node to itself.
    rm -f "$beside".*
    running=
    if [ "$1" = all ]; then
        {
            code=0
            "$bin/python" -m pytest -n 4 -q tests/integration/test_controller_cluster*.py || code=$?
            echo "$code" >"$beside.code"
        } >"$beside.log" 2>&1 &
        running=$!
    fi
    for archive in "$archives"/*.tar; do
        # No release here has one of tracking.
        case $archive in *podium-tracking-*) ;; *) "$PODIUM_CLUSTER_TOOL" load "$archive" >/dev/null ;; esac
        # Nobody runs these tests again in CI's clone: the room goes to the cluster.
        if [ "${CI:-}" = true ]; then rm "$archive"; fi
    done
    if [ -n "$running" ]; then wait "$running" || true; fi
}

if [ "${1:-}" = prepare ]; then
    rm -f "$prepared"
    prepare all
    touch "$prepared"
    exit
fi
failed=0
if [ -n "${PODIUM_CLUSTER_TOOL:-}" ]; then
    trap 'if [ -n "${running:-}" ]; then kill "$running" 2>/dev/null || true; fi
        "$PODIUM_CLUSTER_TOOL" down' EXIT
    if [ -e "$prepared" ] && "$PODIUM_CLUSTER_TOOL" up | grep -q '^already up'; then
        eval "$("$PODIUM_CLUSTER_TOOL" env)"
    elif [ $# = 0 ]; then
        prepare all
    else
        prepare single
    fi
    rm -f "$prepared"
    running=
    export PODIUM_E2E_VOLUMES=host
    if [ $# = 0 ]; then
        cat "$beside.log"
        failed=$(cat "$beside.code")
    fi
fi
PODIUM_E2E=1 "$bin/python" -m pytest "$@" tests/e2e || failed=$?
exit "$failed"
