"""The same loop without `await`, in threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import openai
from podium.sdk.models import Models
from podium.sdk.portal import Portal
from podium.sdk.sync_models import SyncModel, SyncModels
from podium.training import Trajectory, TrajectoryGroup
from podium.training.in_process import InProcessBackend


def shout(messages: list[dict[str, Any]], step: int) -> str:
    return str(messages[-1]["content"]).upper()


def attempt(model: SyncModel, client: openai.OpenAI, text: str) -> Trajectory:
    with model.rollout(reward=float(len(text))) as trajectory:
        message: Any = {"role": "user", "content": text}
        client.chat.completions.create(model=model.name, messages=[message])
    return trajectory


def test_threads_with_one_client_make_a_batch() -> None:
    with InProcessBackend(shout) as backend, closing(Portal()) as portal:
        model = SyncModels(portal, Models(backend)).register("loud", "none")
        texts = ["a", "bb", "ccc", "dddd"]
        with model.openai_client() as client, ThreadPoolExecutor(4) as pool:
            made = list(pool.map(lambda text: attempt(model, client, text), texts))
        for text, trajectory in zip(texts, made, strict=True):
            (call,) = trajectory.calls
            assert (call.messages[0].content, call.reply.content) == (text, text.upper())
        assert model.log([TrajectoryGroup(made)], metrics={"more": 3})["val/reward"] == 2.5
        assert model.train([TrajectoryGroup(made)]).step == model.get_step() == 1
        versions = model.checkpoints()
        assert [version.manifest.version for version in versions] == [1, 0]
        assert versions[1].evaluation_metrics["val/more"] == 3
        model.finish()
