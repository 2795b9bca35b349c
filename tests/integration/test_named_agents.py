"""Agents of PyPI's packages, as their documentation writes them, train as they are.

Real are their packages, the OpenAI and Anthropic APIs, the capture, the controller and the
registry; the engine says what stands in a script, and the trainer's arithmetic is a double's.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import podium
import pytest
import pytest_asyncio
from podium import TrainableModel, Trajectory, TrajectoryGroup
from podium.sdk import Addresses
from podium.types.v1 import trajectory_pb2 as pb
from support.agent_processes import PYTHON, Agents, named_agents, scripted_inference
from support.controlled import running_controller
from support.fleet import Fleet, fleet_of_doubles
from support.full import full
from support.processes import RegistryProcess, running_registry
from support.scripted_inference import LOGPROB
from support.tiny_model import build_tiny_model
from transformers import AutoTokenizer

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(not PYTHON, reason="needs the agents' packages: `make adapters`"),
]

QUESTION = "What is 11 + 1 + 30?"


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def after(result: int) -> str:
    return rf"\n{result}\n</tool_response>"


FIRST = call("add", '{"a": 11, "b": 1}')
SECOND = call("add", '{"a": 12, "b": 30}')
STRUCTURED = call("final_result", '{"total": 42}')
WORDS = "It is 42."
SCRIPT = [
    (f"(?s)final_result.*{after(42)}", STRUCTURED),
    (after(42), WORDS),
    (after(12), SECOND),
    ("", FIRST),
]
AGENTS = [
    "of_openai:answer",
    "of_anthropic:answer",
    "of_langgraph:answer",
    full("of_langgraph:streamed"),
    "of_openai_agents:answer",
    full("of_openai_agents:streamed"),
    full("of_openai_agents:responses"),
    "of_openai_agents:responses_streamed",
    "of_pydantic_ai:answer",
    full("of_pydantic_ai:streamed"),
    full("of_pydantic_ai:responses"),
    full("of_pydantic_ai:anthropic"),
]


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryProcess]:
    yield from running_registry()


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def inference(
    registry: RegistryProcess, model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[str]:
    folder = tmp_path_factory.mktemp("scripted")
    async with scripted_inference(model_folder, folder, registry.address, SCRIPT) as address:
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agents() -> AsyncIterator[Agents]:
    async with named_agents() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(registry: RegistryProcess) -> AsyncIterator[Fleet]:
    async with fleet_of_doubles(registry) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(fleet: Fleet, inference: str) -> AsyncIterator[podium.AsyncClient]:
    async with running_controller(fleet, inference_address=inference) as controller:
        addresses = Addresses(
            controller=controller.address,
            registry=fleet.registry.address,
            inference=inference,
            rollout=fleet.rollout.address,
            judge=fleet.judge.address,
        )
        async with podium.AsyncClient(addresses) as client:
            yield client


@pytest.mark.parametrize("agent", AGENTS)
async def test_an_agent_of_pypi_trains_as_it_is(
    agent: str,
    agents: Agents,
    client: podium.AsyncClient,
    fleet: Fleet,
    model_folder: Path,
    tmp_path: Path,
) -> None:
    """Two calls of its tool and an answer are one history of the very tokens that were sampled."""
    name = agent.replace("of_", "").replace(":", "-").replace("_", "-")
    model = await client.models.register(name, str(model_folder), base_path=tmp_path)
    numbers = itertools.count()

    async def rollout(model: TrainableModel) -> Trajectory:
        answer = await agents.ask(
            agent,
            question=QUESTION,
            base_url=model.inference_base_url,
            api_key=model.inference_api_key,
            model=model.get_inference_name(),
        )
        return Trajectory(reward=next(numbers), metrics={"right": float("42" in answer)})

    (group,) = await podium.gather_trajectory_groups(
        [TrajectoryGroup(rollout(model) for _ in range(2))]
    )
    result = await model.train([group])
    assert (name, result.step) in fleet.trainer.taken
    structured = agent.startswith("of_pydantic_ai")
    said = [FIRST, SECOND, STRUCTURED if structured else WORDS]
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    stored = [each async for each in client.jobs.trajectories(name, step=1)]
    assert [each.metrics["right"] for each in stored] == [1.0, 1.0]
    for trajectory in stored:
        (history,) = trajectory.histories
        tokens = history.tokens
        sampled = [
            tokenizer.decode(tokens.token_ids[span.start : span.start + span.length])
            for span in tokens.spans
        ]
        assert sampled == [f"{text}<|im_end|>" for text in said]
        assert {span.policy for span in tokens.spans} == {name}
        assert set(tokens.logprobs) == {LOGPROB}
        assert [message.role for message in history.messages] == [
            pb.ROLE_SYSTEM,
            pb.ROLE_USER,
            *(pb.ROLE_ASSISTANT, pb.ROLE_TOOL) * 2,
            pb.ROLE_ASSISTANT,
        ]
        assert history.messages[1].content == QUESTION
        assert [m.content for m in history.messages if m.role == pb.ROLE_TOOL] == ["12", "42"]
        assert "add" in [tool.name for tool in history.tools]
    await model.finish()
