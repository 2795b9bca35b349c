"""`--chat-template-arg`: what the model's template is told besides the messages."""

from __future__ import annotations

from pathlib import Path

from support.cli import Result, invoke
from support.fake_podium import FakePodium, fake_podium


async def chatted(fake: FakePodium, folder: Path, argument: str) -> Result:
    arguments = ("chat", "--once", "a", "--chat-template-arg", argument)
    return await invoke(*arguments, cwd=folder, environment=fake.environment)


async def test_a_chat_tells_the_template(tmp_path: Path) -> None:
    async with fake_podium() as fake:
        assert (await chatted(fake, tmp_path, "enable_thinking=false")).code == 0
        (asked,) = fake.inference.chats
        assert dict(asked.chat_template_kwargs) == {"enable_thinking": False}
        wrong = await chatted(fake, tmp_path, "enable_thinking")
        assert (wrong.code, "--chat-template-arg" in wrong.err) == (2, True)
