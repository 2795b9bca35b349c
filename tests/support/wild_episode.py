"""An episode with everything that one can have, said by nobody friendly."""

from __future__ import annotations

from podium.core.outside import struct_of
from podium.types.v1 import trajectory_pb2 as pb

WILD = "café \x1b[2J\x07\u202e 𝄞\nsecond\u2028line\tend"


def wild_episode(number: int = 0, step: int = 3, tokens: int = 4) -> pb.Trajectory:
    """Two turns with a tool, a second history that repeats the first, and an exception."""
    group = f"w/s{step}/g{number}"
    made = pb.Trajectory(
        id=f"{group}/t1",
        group_id=group,
        scenario_id=f"train-{number}",
        attempt=1,
        reward=0.75,
        environment_reward=1.5,
        score_reward=0.25,
        environment_weight=0.5,
        environment="one",
        job_id="w",
        step=step,
        reward_parts={"environment": 0.5, "ruler": 0.25},
        metrics={"success": 1.0, "turns": 2.0},
        stop_reason=pb.STOP_REASON_FAILED,
        explanation=f"Found it, {WILD}",
        trace_id="0af7651916cd43dd8448eb211c80319c",
        info=struct_of({"found": [1, None, {"deep": True}]}),
        failure=pb.Failure(type="ValueError", message=WILD, traceback="Traceback\n  line 1\n"),
    )
    _judge(made)
    made.start_time.FromJsonString("2026-01-02T03:04:05Z")
    made.end_time.FromJsonString("2026-01-02T03:04:08.250Z")
    for reward, ended in ((0.25, False), (1.0, True)):
        made.transitions.add(reward=reward, terminated=ended, state=struct_of({"left": reward}))
    first = made.histories.add()
    first.tools.add(
        name="search", description=WILD, parameters=struct_of({"type": "object", "required": ["q"]})
    )
    first.messages.add(role=pb.ROLE_SYSTEM, content="Be brief.")
    first.messages.add(role=pb.ROLE_USER, content=WILD)
    call = pb.ToolCall(id="c1", name="search", arguments_json='{"q": "budget"}')
    thoughts = f"Where is it? {WILD}\n<b>assistant</b>"
    asked = first.messages.add(role=pb.ROLE_ASSISTANT, tool_calls=[call], reasoning=thoughts)
    asked.malformed_calls.append("no closing brace")
    first.messages.add(role=pb.ROLE_TOOL, content="3 results", tool_call_id="c1", name="search")
    _sample(first, 3, tokens, version=2)
    second = made.histories.add(messages=first.messages)
    second.messages.add(role=pb.ROLE_ASSISTANT, content="It is the second.")
    _sample(second, 5, tokens, version=3)
    return made


def _judge(made: pb.Trajectory) -> None:
    ruler = made.judgements.add(part="ruler", agreement=0.5)
    ruler.opinions.add(
        model=f"judge {WILD}",
        address="http://judge:8000/v1",
        attempts=[pb.JudgedAttempt(trajectory_id=made.id, score=0.25, place=3)],
        temperature=0.5,
        seed=2**62,
        order_seed=made.group_id,
        prompt_digest="abcdef0123456789" * 4,
        finish_reason=WILD,
        refused_parameters=["response_format"],
        max_completion_tokens=512,
        cached=True,
    )
    ruler.opinions.add(failure=f"no answer, {WILD}", address="http://other:8000/v1")
    alone = pb.JudgedAttempt(
        trajectory_id=made.id, score=0.75, prompt_digest="12" * 32, finish_reason="stop", seed=7
    )
    made.judgements.add(part="rubric").opinions.add(model="grader", attempts=[alone], cost=0.5)


def _sample(history: pb.History, prompt: int, count: int, version: int) -> None:
    record = history.tokens
    record.token_ids.extend([*range(11, 11 + prompt), *(100 + n for n in range(count))])
    record.logprobs.extend(-0.1 * (n + 1) for n in range(count))
    record.spans.add(
        start=prompt,
        length=count,
        policy="w",
        weights_version=version,
        temperature=0.7,
        finish_reason=pb.FINISH_REASON_STOP,
        request_id=f"r{version}",
    )
