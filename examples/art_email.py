"""ART's email agent on Podium: it searches an inbox with tools and answers a question.

    python examples/art_email.py --steps 20 --ruler

With `--ruler` the judge service ranks each group's attempts (ART's RULER);
otherwise an answer is paid when it names the right email.

It has the shape of `examples/art_e/train.py` and `rollout.py` of OpenPipe/ART, written
anew: the inbox and the questions (their scenarios.py) are those of Podium's email_search,
and commands are tool calls. To port those two files themselves, these of their lines change:

    import art                                      import podium as art
    from art.local import LocalBackend              (goes)
    backend = LocalBackend()                        async with art.AsyncClient() as backend:
    result = await backend.train(model, groups,     result = await model.train(groups)
        learning_rate=1e-5)
    model = art.TrainableModel(...)                 spec=... added: the model's learning rate
    art.Model(..., project=...)                     no project: a baseline is not stored
    from art.rewards import ruler_score_group       from podium.rewards import ruler_score_group
    ruler_score_group(group, "openai/o3")           as it is, once the judge service has the
                                                    key (PODIUM_JUDGE_KEY_OPENAI); without a
                                                    name, the base model of an adapter pool
                                                    judges (podium up --weight-mode adapter)

All other names are the same: TrainableModel, register, get_step, openai_client,
get_inference_name, Trajectory, TrajectoryGroup, gather_trajectory_groups with pbar_desc,
max_exceptions and after_each, retry, log with split, metrics and step, delete_checkpoints.
What this port does otherwise is in examples/README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

import podium as art
from podium.environments.email_search.corpus import Question, questions
from podium.environments.email_search.mailbox import shared_mailbox
from podium.training.backend import Backend, HasBackend

MAX_TURNS = 6
SYSTEM = (
    "You find the email that answers the user's question. Search with few words, read what looks"
    " right, then return the number of the email. Use the tools."
)


def _tool(name: str, description: str, **arguments: str) -> dict[str, Any]:
    properties = {argument: {"type": kind} for argument, kind in arguments.items()}
    schema = {"type": "object", "properties": properties, "required": list(arguments)}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


TOOLS: list[Any] = [
    _tool("search_inbox", "Emails that hold all of the words.", words="string"),
    _tool("read_email", "The whole of an email.", number="integer"),
    _tool("return_answer", "Ends the search with an email's number.", number="integer"),
]


def use_tool(inbox: str, name: str, arguments: dict[str, Any]) -> str:
    """What a tool answers."""
    mailbox = shared_mailbox()
    if name == "search_inbox":
        found = mailbox.search(inbox, str(arguments["words"]), 5)
        rows = [f"{email.number} | {email.sender} | {email.subject}" for email in found]
        return "\n".join(rows) or "nothing found"
    email = mailbox.get(inbox, int(arguments["number"]))
    return f"{email.sender}\n{email.subject}\n\n{email.body}" if email else "no such email"


async def rollout(model: art.TrainableModel, question: Question) -> art.Trajectory:
    """One attempt: tool calls until an answer, at most MAX_TURNS of them."""
    client = model.openai_client()
    inbox, wanted = question.email.inbox, question.email.number
    trajectory = art.Trajectory(
        messages_and_choices=[
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": question.text},
        ],
        tools=TOOLS,
        metrics={"correct": 0, "answered": 0, "turns": 0},
    )
    while trajectory.metrics["turns"] < MAX_TURNS and not trajectory.metrics["answered"]:
        completion = await client.chat.completions.create(
            model=model.get_inference_name(),
            messages=trajectory.messages(),
            tools=TOOLS,
            max_completion_tokens=128,
        )
        choice = completion.choices[0]
        trajectory.messages_and_choices.append(choice)
        trajectory.metrics["turns"] += 1
        if not choice.message.tool_calls:
            break
        for call in choice.message.tool_calls:
            if call.type != "function":
                continue
            try:
                arguments = json.loads(call.function.arguments)
                if call.function.name == "return_answer":
                    trajectory.metrics["answered"] = 1
                    trajectory.metrics["correct"] = int(arguments["number"]) == wanted
                    continue
                result = use_tool(inbox, call.function.name, arguments)
            except (ValueError, KeyError, TypeError) as error:
                result = f"the call cannot be read: {error!r}"
            trajectory.messages_and_choices.append(
                {"role": "tool", "tool_call_id": call.id, "content": result}
            )
    right, answered = trajectory.metrics["correct"], trajectory.metrics["answered"]
    # ART-E's order: right and quick, then no answer, then a wrong one.
    trajectory.reward = (2.0 - 0.1 * trajectory.metrics["turns"]) if right else -1.0 * answered
    await client.close()
    return trajectory.finish()


async def train(
    backend: Backend | HasBackend,
    *,
    base_model: str,
    steps: int,
    ruler: bool = False,
    attempts: int = 4,
    batch: int = 4,
) -> art.TrainableModel:
    """Learns from the questions in order; every fifth step it is measured on others."""
    training = art.TrainingSpec(learning_rate=1e-5)
    model = art.TrainableModel(
        name="agent-001",
        project="email",
        base_model=base_model,
        spec=art.JobSpec(training=training),
    )
    await model.register(backend)

    async def ranked(group: art.TrajectoryGroup) -> art.TrajectoryGroup | None:
        return await art.ruler_score_group(group, swallow_exceptions=True)

    tasks = questions("train")
    for step in range(await model.get_step(), steps):
        if step % 5 == 0:
            held_out = questions("heldout")[:20]
            measured = await art.gather_trajectories(rollout(model, task) for task in held_out)
            await model.log(measured, "val")
        chosen = [tasks[(step * batch + index) % len(tasks)] for index in range(batch)]
        groups = await art.gather_trajectory_groups(
            (art.TrajectoryGroup(rollout(model, task) for _ in range(attempts)) for task in chosen),
            pbar_desc=f"step {step}",
            max_exceptions=attempts * batch // 2,
            after_each=ranked if ruler else None,
        )
        await model.train(groups)
    return model


async def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base-model", default="smollm2-135m-instruct")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--ruler", action="store_true")
    arguments = parser.parse_args()
    async with art.AsyncClient() as podium:
        await train(
            podium, base_model=arguments.base_model, steps=arguments.steps, ruler=arguments.ruler
        )


if __name__ == "__main__":
    asyncio.run(main())
