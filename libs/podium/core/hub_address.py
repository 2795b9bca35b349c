"""Where the Hugging Face hub is: what its clients read of the environment, and do not check."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

VARIABLE = "HF_ENDPOINT"
_SECRET = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?.*@", re.DOTALL)


def wrong_hub_address() -> str:
    """What is wrong with the hub's address in the environment; empty if nothing is.

    To be asked before the hub's client is loaded: of some addresses it fails as it is imported.
    """
    given = os.environ.get(VARIABLE)
    if given is None:
        return ""
    try:
        parts = urlsplit(given)
        is_url = bool(parts.scheme in ("http", "https") and parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if is_url and not re.search(r"\s|[?#]", given):
        return ""
    # It may hold a password.
    shown = _SECRET.sub(r"\1…@", given)
    return (
        f"got {shown!r}; allowed are http:// or https://, a host and, where it is another, a port"
        " up to 65535, such as https://hub.example:8443; unset it is https://huggingface.co"
    )
