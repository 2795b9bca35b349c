"""How a template behaves when it is told certain tools and arguments."""

from __future__ import annotations

from dataclasses import dataclass

from podium.types.v1 import trajectory_pb2 as pb

from podium_inference.domain.world import TemplateWorld

_TURNS = 4


@dataclass
class Habits:
    """Found out by trying, once for all conversations of a kind."""

    calls_apart: bool = True
    """Whether what follows calls is written otherwise than what follows words."""
    results_need_calls: bool = False
    """Whether a result that follows words is left out, so that none may stand for calls."""
    local: bool = True
    """Whether the recent messages are enough to tell what follows the sampled turn. False for
    good once they were not."""
    stand_in: TemplateWorld | None = None
    """What may be told with the recent messages, whose tools are one that is small: templates
    write the tools before the first turn, and none of it follows the sampled one. None where
    that is not so."""


def tried_conversations(tools: bool) -> list[list[pb.Message]]:
    """Conversations of every kind of turn that templates tell apart, with and without thoughts."""
    made = []
    for thoughts in ("", "<think>\nwhy {}\n</think>\n\n"):
        made.append(_plain(thoughts))
        if tools:
            made.append(_with_calls(thoughts))
    return made


def _plain(thoughts: str) -> list[pb.Message]:
    messages = [_said(pb.ROLE_SYSTEM, "Be brief."), _said(pb.ROLE_USER, "one?")]
    for turn in range(_TURNS):
        messages.append(_said(pb.ROLE_ASSISTANT, f"{thoughts.format(turn)}answer {turn}"))
        messages.append(_said(pb.ROLE_USER, f"and {turn}?"))
    return messages


def _with_calls(thoughts: str) -> list[pb.Message]:
    """A loop of calls, an answer, and the same once more."""
    messages = [_said(pb.ROLE_USER, "one?")]
    for turn in range(2 * _TURNS):
        if turn % _TURNS == _TURNS - 1:
            messages.append(_said(pb.ROLE_ASSISTANT, f"answer {turn}"))
            messages.append(_said(pb.ROLE_USER, f"and {turn}?"))
            continue
        # Nine letters and digits: Mistral's templates accept no other ids.
        call = pb.ToolCall(id=f"tried{turn:04d}", name="look", arguments_json='{"at": 1}')
        words = thoughts.format(turn).strip() if turn % 2 == 0 else ""
        messages.append(pb.Message(role=pb.ROLE_ASSISTANT, content=words, tool_calls=[call]))
        messages.append(
            pb.Message(role=pb.ROLE_TOOL, content=f"{turn}", tool_call_id=call.id, name="look")
        )
    return messages


def _said(role: pb.Role.ValueType, content: str) -> pb.Message:
    return pb.Message(role=role, content=content)
