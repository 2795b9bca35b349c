#!/bin/sh
# Installs Debian packages as root on Debian or Ubuntu; elsewhere says what to install, and fails.
# usage: tools/install.sh WHY PACKAGE...
set -eu
why=$1
shift

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing with apt-get: $*"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
else
    echo "$why (Debian's names): $*" >&2
    echo "Install them, for example: sudo apt-get install $*" >&2
    exit 1
fi
