"""Submissions that attack the tests and not the task."""

from __future__ import annotations

import json
from typing import Any

import pytest
from podium.environments import Message, Scenario, StepResult
from podium.environments.coding import Coding
from support.namespaces import needs_namespaces

pytestmark = needs_namespaces

SECRET = "needle-of-the-expected"
SHOWN = "needle-of-the-input"
HIDDEN = [{"input": [f"{SHOWN}-{n}"], "output": f"{SECRET}-{n}"} for n in range(4)]
DEFINED = "\ndef f(text):\n    return text\n"


async def submit(code: str, *, examples: Any = (), attempts: int = 1) -> StepResult:
    episode = Coding({"attempts": attempts, "case_seconds": 3})
    data = {"function": "f", "text": "", "examples": list(examples), "hidden": HIDDEN}
    await episode.reset(Scenario("x", data), seed=1)
    return await episode.step(Message("assistant", f"```python\n{code}\n```"))


async def seen_by(code: str) -> Any:
    """What the submission returns, as the feedback on an example shows it."""
    example = {"input": [f"{SHOWN}-9"], "output": f"{SECRET}-9"}
    result = await submit(code, examples=[example], attempts=2)
    assert not result.terminated
    (message,) = result.observation.messages
    return message.content.split(" returned ", 1)[1].rsplit(", expected ", 1)[0]


def to_all(data: str) -> str:
    """Writes bytes wherever it can."""
    return f"""
import os
for descriptor in range(64):
    try:
        os.write(descriptor, {data})
    except OSError:
        pass
"""


ATTACKS = {
    "json": "import json\njson.dumps = lambda *a, **k: '{\"value\": true}'",
    "builtins": "import builtins\nbuiltins.open = builtins.len = builtins.print = lambda *a: True",
    "modules": "import sys\nsys.modules['json'] = sys.modules['os'] = None",
    "harness": """
import __main__, sys
frame = sys._getframe()
while frame:
    frame.f_globals['_answer'] = lambda answers, identifier, call: answers.write(b'true')
    frame = frame.f_back
""",
    "early answers": to_all("""b'{"id": "", "value": true}\\n' * 9"""),
    "exit": "import os\nos._exit(0)",
    "exit after answers": to_all("b'true\\n' * 9") + "os._exit(0)",
    "garbage": to_all("os.urandom(999)"),
    "nesting": to_all("b'[' * 99999 + b'\\n'"),
    "digits": to_all("b'9' * 99999 + b'\\n'"),
    "no newline": to_all("b'x' * 300000"),
    "signals": """
import os
for process in (-1, 1, 0, os.getppid()):
    try:
        os.kill(process, 9)
    except OSError:
        pass
""",
    "memory": "kept = []\nwhile True: kept.append(bytearray(1 << 20))",
    "recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef g(): g()\ng()",
    "fork": "import os\nwhile True:\n  try: os.fork()\n  except OSError: break",
    "limits": "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (0, 0))\nwhile True: pass",
    "closed": "import os\nos.closerange(0, 64)",
}

LIARS = {
    "equal to all": "class Liar:\n  __eq__ = lambda *a: True\ndef f(text): return Liar()",
    "text": "class Liar(str):\n  __eq__ = lambda *a: True\n  __hash__ = str.__hash__\n"
    "def f(text): return Liar('x')",
    "number": "class Liar(int):\n  __eq__ = lambda *a: True\ndef f(text): return Liar(1)",
    "mapping": "class Liar(dict):\n  __eq__ = lambda *a: True\ndef f(text): return Liar(a=1)",
    "truth": "def f(text): return True",
    "raises": "def f(text): raise BaseException('passed')",
    "long": "def f(text): return 'x' * 10_000_000",
    "deep": "def f(text):\n  x = []\n  for _ in range(99999): x = [x]\n  return x",
    "not a number": "def f(text): return float('nan')",
    "huge": "def f(text): return 10 ** 4000",
    "loop": "def f(text):\n  x = []\n  x.append(x)\n  return x",
    "no function": 'f = 1\nif 0:\n  pass\n#\ndef g(): pass\n# \n"""\ndef f(text): return text\n"""',
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
async def test_no_attack_passes_a_test(attack: str) -> None:
    result = await submit(attack + DEFINED)
    assert result.terminated
    assert result.metrics["tests_passed"] == 0.0
    assert result.reward <= 0.1
    json.dumps(result.info)


@pytest.mark.parametrize("liar", LIARS.values(), ids=LIARS.keys())
async def test_no_value_passes_for_another(liar: str) -> None:
    result = await submit(liar)
    assert result.terminated
    assert result.metrics["tests_passed"] == 0.0


async def test_an_honest_submission_passes_beside_them() -> None:
    honest = f"def f(text):\n    return text.replace({SHOWN!r}, {SECRET!r})"
    assert (await submit(honest)).metrics["success"] == 1.0


SEARCH = """
import gc, sys
def f(text):
    found, todo, known = set(), [*gc.get_objects()], set()
    frame = sys._getframe()
    while frame:
        todo += [frame.f_locals, frame.f_globals]
        frame = frame.f_back
    while todo:
        thing = todo.pop()
        if id(thing) in known:
            continue
        known.add(id(thing))
        if isinstance(thing, (str, bytes)):
            text = thing if isinstance(thing, str) else thing.decode(errors='replace')
            for part in text.split('"'):
                if part.startswith('-'.join(['needle', 'of', 'the'])):
                    found.add(part)
        elif isinstance(thing, dict):
            todo += [*thing.keys(), *thing.values()]
        elif isinstance(thing, (list, tuple, set)):
            todo += list(thing)
    return sorted(found)
"""


async def test_what_is_expected_is_nowhere_in_the_process() -> None:
    """Nor any input but the one that is asked, which the search does find."""
    assert await seen_by(SEARCH) == repr([f"{SHOWN}-9"])


READ_AHEAD = """
import os
def f(text):
    read = b''
    for descriptor in range(64):
        try:
            os.set_blocking(descriptor, False)
            read += os.read(descriptor, 1 << 20)
        except OSError:
            pass
    return read.decode()
"""


async def test_later_tests_cannot_be_read_ahead() -> None:
    assert await seen_by(READ_AHEAD) == "''"


TAKE_OVER = """
import json, os
incoming = next(d for d in range(3, 64) if not os.get_inheritable(d))
def answer(lines):
    for line in lines:
        asked = json.loads(line)
        for value in (True, asked["input"][0]):
            yield {"id": asked["id"], "value": value}
def f(text):
    return text
for descriptor in range(3, 64):
    try:
        questions = os.fdopen(os.dup(descriptor), "rb")
        answers = os.fdopen(os.dup(descriptor + 1), "wb")
    except OSError:
        continue
    answers.write(b'{"id": "", "value": 1}\\n')
    for reply in answer(questions):
        answers.write(json.dumps(reply).encode() + b"\\n")
        answers.flush()
"""


async def test_a_submission_that_takes_over_the_conversation_still_has_to_know() -> None:
    assert (await submit(TAKE_OVER)).metrics["tests_passed"] == 0.0
