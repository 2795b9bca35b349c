"""`podium eval run --judge` before the judge service itself, over a model that a script plays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.cli import Result, invoke
from support.fake_judge import FakeJudge, fake_judge, scores
from support.fake_podium import FakePodium, fake_podium
from support.http_scoring import root
from support.judging import by_number, judge_service


class Installation:
    """The doubles, with the judge's own service, and a scorer that its operator trusts."""

    def __init__(self, fake: FakePodium, model: FakeJudge, scorer: FakeJudge, judge: str) -> None:
        self.fake, self.model, self.scorer, self.judge = fake, model, scorer, judge
        self.scorer_url = root(scorer)
        self.openai = ""

    async def run(self, folder: Path, *arguments: str) -> Result:
        addresses = {"PODIUM_JUDGE_ADDRESS": self.judge, "OPENAI_BASE_URL": self.openai}
        environment = {**self.fake.environment, **addresses}
        return await invoke("eval", *arguments, cwd=folder, environment=environment)


@asynccontextmanager
async def judged_installation(folder: Path, **settings: Any) -> AsyncIterator[Installation]:
    """With a policy `mail@7`, which is better than the base model in two scenarios of four."""
    with fake_judge() as model, fake_judge() as scorer:
        model.then(scores(by_number))
        trusted = {"trusted_base_urls": (root(scorer),)} | settings
        async with judge_service(model, **trusted) as judge, fake_podium(stored=folder) as fake:
            fake.registry.publish("mail", 7, {})

            def says(request: Any, attempt: int) -> str:
                # The same words, better, as good in other words, better.
                trained = ("well 5", "well 9", "good 5", "well 8")
                return trained[int(request.scenario.id)] if request.policy.job else "well 5"

            fake.rollout.says = says
            yield Installation(fake, model, scorer, judge)
