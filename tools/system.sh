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

# shellcheck disable=SC2086  # a list of package names
sh tools/install.sh "Missing system packages" $missing
