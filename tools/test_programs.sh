#!/bin/sh
# Checks for the programs that tests start: PostgreSQL and Prometheus.
# As root on Debian or Ubuntu it installs what is missing; elsewhere it says what to install.
set -eu

missing=
command -v prometheus >/dev/null || missing="$missing prometheus"
command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing with apt-get:$missing"
    # Debian would start a server of each on its standard port; the tests start their own.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod +x $policy
    fi
    apt-get update -qq
    # shellcheck disable=SC2086  # a list of package names
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    echo "The tests start programs that are missing here (Debian's names):$missing" >&2
    echo "Install them, for example: sudo apt-get install$missing" >&2
    exit 1
fi
