"""`podium job logs` on a cluster: what the pods of a release wrote, read with kubectl."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from podium.cli.job import pod_logs
from support.cli import Result, invoke
from support.cli_user import add_job
from support.fake_kubectl import FakeKubectl
from support.fake_podium import FakePodium

FORBIDDEN = (
    'Error from server (Forbidden): pods is forbidden: User "ann" cannot list resource "pods"'
)


def pod(name: str, component: str, job: str = "", restarts: int = 0) -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/instance": "podium",
        "app.kubernetes.io/part-of": "podium",
        "app.kubernetes.io/component": component,
    }
    if job:
        labels["podium.dev/job"] = job
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "podium", "labels": labels},
        "status": {"containerStatuses": [{"restartCount": restarts}]},
    }


def line(second: int, text: str) -> str:
    return f"2026-01-02T03:04:{second:02d}.5Z {text}"


class Cluster:
    """A release whose pods write, and somebody who is logged in to it."""

    def __init__(self, fake: FakePodium, folder: Path) -> None:
        self.fake = fake
        self.folder = folder
        self.kubectl = FakeKubectl(folder / "bin")
        self.kubectl.play_release(fake.address, "")
        self.kubectl.objects += [
            pod("podium-controller-0", "controller"),
            pod("podium-postgresql-0", "postgresql"),
            pod("podium-inference-default-0", "inference-default"),
            pod("w-trainer-0-x", "trainer", job="w", restarts=1),
            pod("other-trainer-0-y", "trainer", job="other"),
        ]
        self.kubectl.logs = {
            "podium-controller-0": [line(1, "about w"), line(2, "about w2"), line(3, "w again")],
            "podium-inference-default-0": [line(1, "nothing")],
            "w-trainer-0-x": [
                line(4, json.dumps({"level": "info", "message": "step \x1b[2J", "loss": 0.5})),
                line(5, "plain"),
            ],
            "w-trainer-0-x/previous": [line(0, "crashed")],
            "other-trainer-0-y": [line(1, "not for w")],
        }
        self.kubectl.write()

    async def __call__(self, *arguments: str) -> Result:
        environment = {**self.kubectl.environment, "LAB_TOKEN": "x"}
        return await invoke(*arguments, cwd=self.folder, environment=environment)

    async def logs(self, *options: str) -> Result:
        return await self("job", "logs", "w", *options)


@pytest.fixture
def cluster(fake: FakePodium, tmp_path: Path) -> Cluster:
    add_job(fake)
    made = Cluster(fake, tmp_path)
    lab = {
        "addresses": {"controller": fake.address},
        "kubernetes": {"context": "a-cluster"},
        "token_env": "LAB_TOKEN",
    }
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "contexts.yaml").write_text(
        yaml.safe_dump({"current": "lab", "contexts": {"lab": lab}})
    )
    return made


def of_pods(done: Result) -> list[list[str]]:
    lines = [each for each in done.out.splitlines() if not each.startswith("event")]
    return [each.split(maxsplit=2) for each in lines]


async def test_the_jobs_own_pods_are_whole_and_of_others_what_names_it(cluster: Cluster) -> None:
    done = await cluster.logs()
    assert done.code == 0, done.err
    assert done.out.count("event ") == 6
    assert of_pods(done) == [
        ["trainer", "w-trainer-0-x", "INFO step \\x1b[2J loss=0.5"],
        ["trainer", "w-trainer-0-x", "plain"],
        ["controller", "podium-controller-0", "about w"],
        ["controller", "podium-controller-0", "w again"],
    ]


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        (("--tail", "1"), ["plain", "w again"]),
        (("--tail", "0"), []),
        (("--service", "trainer", "--tail", "1"), ["plain"]),
        (("--service", "inference"), []),
        (("--pod", "podium-c"), ["about w", "w again"]),
        (("--previous",), ["crashed"]),
    ],
)
async def test_some_lines_alone(
    cluster: Cluster, options: tuple[str, ...], texts: list[str]
) -> None:
    done = await cluster.logs(*options)
    assert done.code == 0, done.err
    assert [text for *_, text in of_pods(done)] == texts


async def test_since_is_asked_of_the_cluster_and_leaves_out_events(cluster: Cluster) -> None:
    done = await cluster.logs("--since", "1h30m")
    assert done.code == 0
    asked = [call for call in cluster.kubectl.calls if "logs" in call]
    assert asked
    assert all("--since=1h30m" in call for call in asked)


async def test_a_pod_that_is_not_ready_or_gone_is_said_and_the_others_shown(
    cluster: Cluster,
) -> None:
    del cluster.kubectl.logs["w-trainer-0-x"]
    cluster.kubectl.write()
    done = await cluster.logs()
    assert done.code == 0
    assert 'w-trainer-0-x: kubectl: Error from server (BadRequest): container "trainer"' in done.err
    assert len(of_pods(done)) == 2
    assert "no container of these pods" in (await cluster.logs("--previous", "--pod", "po")).err


@pytest.mark.parametrize("beginning", ["get pods", "logs"])
async def test_without_the_right_it_says_which_one(cluster: Cluster, beginning: str) -> None:
    cluster.kubectl.refusals = {beginning: FORBIDDEN}
    cluster.kubectl.write()
    for follow in ((), ("-f",)):
        done = await cluster.logs(*follow)
        assert done.code == 4
        assert "your rights do not reach to the logs of pods in namespace podium" in done.err
        assert "pods/log" in done.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--since", "soon"), "allowed is a duration such as 30s"),
        (("--previous", "-f"), "name one"),
        (("--tail", "-1"), "--tail"),
    ],
)
async def test_usage(cluster: Cluster, options: tuple[str, ...], words: str) -> None:
    done = await cluster.logs(*options)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


async def test_following_shows_new_lines_and_new_pods_once_until_the_job_ends(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_logs, "POLL_SECONDS", 0.05)
    jobs = cluster.fake.jobs
    end = jobs.updates.pop()
    jobs.hold_watch = True
    following = asyncio.create_task(cluster.logs("-f"))
    while sum("--follow" in call for call in cluster.kubectl.calls) < 3 and not following.done():
        await asyncio.sleep(0.01)
    cluster.kubectl.logs["w-trainer-0-x"].append(line(6, "while followed"))
    cluster.kubectl.objects.append(pod("w-trainer-0-z", "trainer", job="w"))
    cluster.kubectl.logs["w-trainer-0-z"] = [line(7, "a second pod")]
    cluster.kubectl.write()
    while not any("w-trainer-0-z" in call for call in cluster.kubectl.calls):
        assert not following.done(), following.result()
        await asyncio.sleep(0.01)
    jobs.updates.append(end)
    jobs.released.set()
    done = await asyncio.wait_for(following, 30)
    assert done.code == 0, done.err
    texts = [text for *_, text in of_pods(done)]
    assert sorted(texts) == sorted(
        [
            "INFO step \\x1b[2J loss=0.5",
            "plain",
            "about w",
            "w again",
            "while followed",
            "a second pod",
        ]
    )
    assert "state: succeeded" in done.out


async def test_a_line_without_end_is_cut_and_the_next_one_is_whole(cluster: Cluster) -> None:
    long = line(1, "w " + "x" * 400_000)
    cluster.kubectl.logs["podium-controller-0"] = [long, line(2, "w next")]
    cluster.kubectl.write()
    done = await cluster.logs("--service", "controller")
    first, second = (text for *_, text in of_pods(done))
    assert 200_000 < len(first) < 300_000
    assert second == "w next"


async def test_lines_whose_times_are_equal_or_go_back_are_all_shown(cluster: Cluster) -> None:
    said = [(2, "w error"), (1, "w output"), (1, "w more")]
    cluster.kubectl.logs["podium-controller-0"] = [line(*each) for each in said]
    cluster.kubectl.write()
    done = await cluster.logs("--service", "controller")
    assert [text for *_, text in of_pods(done)] == [text for _, text in said]


async def test_where_there_is_neither_release_nor_file_it_says_how_to_get_there(
    fake: FakePodium, tmp_path: Path
) -> None:
    add_job(fake)
    done = await invoke("job", "logs", "w", cwd=tmp_path, environment=fake.environment)
    assert done.code == 0
    assert "podium login NAME --release RELEASE" in done.err
