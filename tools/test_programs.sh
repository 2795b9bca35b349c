#!/bin/sh
# Checks for the programs that tests start: PostgreSQL, Prometheus, bubblewrap and Chromium; and axe.
# As root on Debian or Ubuntu it installs what is missing; elsewhere it says what to install.
set -eu

sh tools/axe.sh

missing=
command -v prometheus >/dev/null || missing="$missing prometheus"
command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
# Of Debian alone: Ubuntu's is no package. Elsewhere the tests of pages are skipped without it.
command -v chromium >/dev/null || [ "$(id -u)" != 0 ] || ! grep -qs '^ID=debian' /etc/os-release || missing="$missing chromium"
command -v bwrap >/dev/null || missing="$missing bubblewrap"
ldconfig -p 2>/dev/null | grep -q 'libseccomp\.so\.2' || missing="$missing libseccomp2"
[ -n "$missing" ] || exit 0

# Debian would start a server of each on its standard port; the tests start their own.
policy=/usr/sbin/policy-rc.d
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && [ ! -e $policy ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod +x $policy
fi
# shellcheck disable=SC2086  # a list of package names
sh tools/install.sh "The tests start programs that are missing here" $missing
