"""`podium chat`: talk to a policy."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from podium.cli.completers import complete_jobs
from podium.cli.connection import connected
from podium.cli.integers import Count, Integer
from podium.cli.output import note
from podium.cli.serving import named, pool_for
from podium.cli.settings import read_settings

if TYPE_CHECKING:
    from podium.inference.v1 import inference_service_pb2
    from podium.sdk import AsyncClient
    from podium.types.v1 import policy_pb2, trajectory_pb2

_COMMANDS = "/reset begins again, /exit or Ctrl-D ends"


@click.command(short_help="Talk to a policy.")
@click.option(
    "-m",
    "--model",
    default="",
    metavar="JOB[@VERSION]",
    shell_complete=complete_jobs,
    help="Whose policy; VERSION is a number or an alias, such as best. [default: the base model]",
)
@click.option("--once", metavar="TEXT", help="Send this, print the answer, end.")
@click.option("--system", metavar="TEXT", help="The system message.")
@click.option(
    "--history",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='Messages to begin with: a JSON list of {"role": ..., "content": ...}.',
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, 5),
    default=0.0,
    show_default=True,
    help="0 is greedy.",
)
@click.option(
    "--max-tokens",
    type=Count(1, bits=32),
    default=256,
    show_default=True,
    help="Longest answer.",
)
@click.option("--seed", type=Integer(), help="Seed of the sampling.")
@click.option(
    "--chat-template-arg",
    "template_arguments",
    multiple=True,
    metavar="KEY=VALUE",
    help="What the chat template is told besides, such as enable_thinking=false; VALUE is YAML.",
)
@connected
async def chat(
    client: AsyncClient,
    model: str,
    once: str | None,
    system: str | None,
    history: Path | None,
    temperature: float,
    max_tokens: int,
    seed: int | None,
    template_arguments: Sequence[str],
) -> None:
    """Talk to the base model or to a trained policy; the answer is streamed to stdout.

    Without --once, each line that is typed is a message; a piped stdin is one
    message as a whole. A pool that holds one policy (merged weights, as on a CPU) serves the one
    that is named meanwhile, unless a job trains there.
    """
    from podium.core.policy_names import resolve_policy
    from podium.types.v1 import policy_pb2, trajectory_pb2

    policy = await resolve_policy(model, client.checkpoints.get)
    template = read_settings(template_arguments, "--chat-template-arg")
    earlier = await asyncio.to_thread(_read_history, history) if history else []
    async with pool_for(client) as pool:
        await pool.serve(policy)
        sampling = policy_pb2.SamplingParams(
            temperature=temperature, max_tokens=max_tokens, seed=seed
        )
        start = [_message(trajectory_pb2.ROLE_SYSTEM, system)] if system else []
        conversation = ChatState(client, policy, sampling, start + earlier, template)
        if once is not None or not sys.stdin.isatty():
            text = once if once is not None else await asyncio.to_thread(sys.stdin.read)
            await conversation.say(text.strip())
            return
        note(f"talking to {named(policy)}; {_COMMANDS}")
        await _converse(conversation)


async def _converse(conversation: ChatState) -> None:
    while (line := await _ask()) is not None:
        if line == "/exit":
            break
        if line == "/reset":
            conversation.reset()
            note("begun again")
        elif line.startswith("/"):
            note(_COMMANDS)
        elif line:
            await conversation.say(line)


class ChatState:
    """Messages so far, and how the answers are sampled."""

    def __init__(
        self,
        client: AsyncClient,
        policy: policy_pb2.PolicyRef,
        sampling: policy_pb2.SamplingParams,
        start: Sequence[trajectory_pb2.Message],
        template: Mapping[str, Any],
    ) -> None:
        self._client = client
        self._policy = policy
        self._sampling = sampling
        self._template = template
        self._start = list(start)
        self._messages = list(start)

    def reset(self) -> None:
        """Forgets everything but the messages that it began with."""
        self._messages = list(self._start)

    async def say(self, text: str) -> None:
        """Sends a message and prints the answer as it comes."""
        from podium.types.v1 import trajectory_pb2

        asked = [*self._messages, _message(trajectory_pb2.ROLE_USER, text)]
        last: inference_service_pb2.StreamChatResponse | None = None
        answer = ""
        async for piece in self._client.policies.stream_chat(
            asked,
            policy=self._policy,
            sampling=self._sampling,
            chat_template_kwargs=self._template,
        ):
            answer += piece.delta.text
            click.echo(piece.delta.text, nl=False)
            last = piece
        click.echo()
        if last is None:
            return
        message = last.message
        if not message.role:
            message = _message(trajectory_pb2.ROLE_ASSISTANT, answer)
        for call in message.tool_calls:
            click.echo(f"-> {call.name}({call.arguments_json})")
        if last.delta.finish_reason == trajectory_pb2.FINISH_REASON_LENGTH:
            note("(cut at --max-tokens)")
        self._messages = [*asked, message]


def _read_history(path: Path) -> list[trajectory_pb2.Message]:
    from podium.core.outside import clean
    from podium.types.v1 import trajectory_pb2

    roles = {
        "system": trajectory_pb2.ROLE_SYSTEM,
        "user": trajectory_pb2.ROLE_USER,
        "assistant": trajectory_pb2.ROLE_ASSISTANT,
    }
    try:
        plain = json.loads(path.read_text(encoding="utf-8-sig"))
        if not isinstance(plain, list) or not all(isinstance(m["content"], str) for m in plain):
            raise TypeError("a list, whose contents are texts")
        return [_message(roles[m["role"]], clean(m["content"])) for m in plain]
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror}"
        raise click.BadParameter(text, param_hint="--history") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise click.BadParameter(
            f'{path} is not a JSON list of {{"role": ..., "content": ...}} with the roles '
            f"{', '.join(roles)}, and texts as contents",
            param_hint="--history",
        ) from None


def _message(role: trajectory_pb2.Role.ValueType, text: str) -> trajectory_pb2.Message:
    from podium.types.v1 import trajectory_pb2

    return trajectory_pb2.Message(role=role, content=text)


async def _ask() -> str | None:
    def read() -> str | None:
        try:
            return input("> ").strip()
        except EOFError:
            return None

    return await asyncio.to_thread(read)
