#!/bin/sh
# Builds the images and tests the chart in a real cluster: the one of the current kubeconfig, or, with
# PODIUM_CLUSTER_TOOL, one that this script starts and stops. With the first, PODIUM_E2E_VALUES names
# a values file that says where its nodes find the images.
# usage: tools/e2e.sh BIN [PYTEST ARGUMENT...]
set -eu
bin=$1
shift
if [ -n "${PODIUM_CLUSTER_TOOL:-}" ]; then
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
    beside=
    trap 'if [ -n "$beside" ]; then kill "$beside" 2>/dev/null || true; fi; "$PODIUM_CLUSTER_TOOL" down' EXIT
    # They wait in namespaces of their own, with the image that this cluster comes with: while the
    # others are loaded, unless single tests are asked for. The installation has the node to itself.
    if [ $# = 0 ]; then
        "$bin/python" -m pytest -n 4 -q tests/integration/test_controller_cluster*.py \
            >build/e2e-beside.log 2>&1 &
        beside=$!
    fi
    for archive in "$archives"/*.tar; do
        "$PODIUM_CLUSTER_TOOL" load "$archive" >/dev/null
        # Nobody runs these tests again in CI's clone: the room goes to the cluster.
        if [ "${CI:-}" = true ]; then rm "$archive"; fi
    done
    export PODIUM_E2E_VOLUMES=host
fi
failed=0
if [ -n "${beside:-}" ]; then
    wait "$beside" || failed=$?
    beside=
    cat build/e2e-beside.log
fi
PODIUM_E2E=1 "$bin/python" -m pytest "$@" tests/e2e || failed=$?
exit "$failed"
