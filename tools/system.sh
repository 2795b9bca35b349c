#!/bin/sh
# Checks what pip cannot bring: Python 3.11 with venv, and libnuma, which vLLM's CPU build links.
# As root on Debian or Ubuntu it installs what is missing; elsewhere it says what to install.
# usage: tools/system.sh PYTHON
set -eu
python=$1

if [ -z "$python" ] || ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then
    echo "Podium's lock is for Python 3.11, and ${python:-no python3} is ${python:+$("$python" -V 2>&1)}." >&2
    echo "Install Python 3.11, then run: make $([ -d .venv ] && echo clean) setup PYTHON=/path/to/python3.11" >&2
    exit 1
fi

missing=
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3.11-venv"
"$python" -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null || missing="$missing libnuma1"
"$python" -c 'import ctypes; ctypes.CDLL("libstdc++.so.6")' 2>/dev/null || missing="$missing libstdc++6"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing with apt-get:$missing"
    apt-get update -qq
    # shellcheck disable=SC2086  # a list of package names
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    echo "Missing system packages (Debian's names):$missing" >&2
    echo "Install them, for example: sudo apt-get install$missing" >&2
    exit 1
fi
