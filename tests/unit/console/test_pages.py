"""What the pages ask for, of doubles of the services over real gRPC and real HTTP."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.sdk import Addresses
from support.console import MARK, Console, console, trajectory
from support.fake_job_service import watched_job
from support.fake_podium import FakePodium
from support.job_records import evaluations, job, steps
from support.wild_episode import wild_episode

MEGABYTE = 1_000_000


pytestmark = pytest.mark.asyncio(loop_scope="session")


async def ok(here: Console, path: str, **query: Any) -> Any:
    answer = await here.http.get(path, params=query)
    assert answer.status_code == 200, answer.text
    assert len(answer.content) < MEGABYTE
    return answer.json()


async def events(here: Console, path: str, most: int, **headers: str) -> list[dict[str, Any]]:
    """The first so many events of a stream, each with `event` and `id`."""
    found: list[dict[str, Any]] = []
    current: dict[str, Any] = {}
    async with here.http.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "data":
                current |= json.loads(value)
            elif name in ("event", "id"):
                current[name] = value
            elif not line and current:
                found.append(current)
                current = {}
                if len(found) == most:
                    break
    return found


# One that does not tell is of before a service could have several.
@pytest.mark.parametrize(("told", "workers"), [(None, 1), (4, 4), (0, 0)])
async def test_s17_status_has_the_tutorials_keys_and_what_they_count(
    fake: FakePodium, here: Console, told: int | None, workers: int
) -> None:
    fake.rollout.workers = told
    for name, running, waiting, collected in (("a", 24, 40, 3), ("b", 8, 0, 0)):
        one = fake.jobs.known[name] = job(name, done=3)
        one.episodes_running, one.episodes_waiting = running, waiting
        one.groups_collected = collected
    done = fake.jobs.known["done"] = job("done")
    done.episodes_waiting = 99
    queued = fake.jobs.known["q"] = job("q", done=0)
    queued.state = jobs.JOB_STATE_QUEUED
    found = await ok(here, "/status")
    size = done.spec.rollout.group_size
    assert found["active_clients"] == workers
    assert found["episodes_queued"] == 40
    assert found["results_available"] == 3 * size
    assert found["episodes_running"] == 32
    assert found["jobs"] == {"queued": 1, "running": 2}
    (client,) = found["clients"]
    assert client == {"address": fake.address, "answers": True, "problem": "", "workers": workers}


async def test_s18_the_page_works_offline_and_is_told_the_counts(
    fake: FakePodium, here: Console
) -> None:
    page = (await here.http.get("/")).text
    assert "<title>Podium</title>" in page
    assert "//" not in page.replace("/static/", "")
    first, second = await events_while(here, fake)
    assert first["status"]["jobs"] == {"running": 1}
    assert first["status"]["clients"][0]["answers"] is True
    assert second["status"]["jobs"] == {"paused": 1}


async def events_while(here: Console, fake: FakePodium) -> list[dict[str, Any]]:
    found = []
    async with here.http.stream("GET", "/api/live") as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line.removeprefix("data: ")))
                fake.jobs.known["a"].state = jobs.JOB_STATE_PAUSED
            if len(found) == 2:
                return found
    raise AssertionError("the stream ended")


async def test_jobs_come_by_pages_with_what_a_row_shows(fake: FakePodium, here: Console) -> None:
    for n in range(4):
        fake.jobs.known[f"b{n}"] = job(f"b{n}", done=1)
    first = await ok(here, "/api/jobs")
    second = await ok(here, "/api/jobs", after=first["next"])
    assert [row["id"] for row in first["jobs"] + second["jobs"]] == ["a", "b0", "b1", "b2"]
    assert first["jobs"][0]["completed_steps"] == 3
    wrong = await here.http.get("/api/jobs", params={"after": "mine"})
    assert wrong.status_code == 400
    assert wrong.json()["error"]["violations"][0]["field"] == "page_token"


async def test_500_steps_are_one_small_answer_and_5000_are_thinned(
    fake: FakePodium, here: Console
) -> None:
    fake.jobs.steps = steps(500)
    for step in fake.jobs.steps:
        for n in range(40):
            step.metrics[f"train/further_number_{n}"] = n / 7 + step.number
    found = await ok(here, "/api/jobs/a/steps")
    assert (found["total"], found["every"], found["numbers"][-1]) == (500, 1, 500)
    assert found["metrics"]["reward_mean"][0] == pytest.approx(
        fake.jobs.steps[0].metrics["reward_mean"], rel=1e-5
    )
    fake.jobs.steps = [each for _ in range(10) for each in fake.jobs.steps]
    for number, step in enumerate(fake.jobs.steps, start=1):
        step.number = number
    few = await ok(here, "/api/jobs/a/steps", names="reward_mean", points=60)
    assert (few["every"], len(few["numbers"]), list(few["metrics"])) == (84, 60, ["reward_mean"])


async def test_a_number_that_is_none_is_told_and_breaks_no_page(
    fake: FakePodium, here: Console
) -> None:
    fake.jobs.steps = steps(4)
    fake.jobs.steps[2].metrics["train/loss"] = math.nan
    fake.jobs.known["a"].latest_metrics["train/loss"] = math.inf
    found = await ok(here, "/api/jobs/a/steps")
    assert found["metrics"]["train/loss"][2] is None
    assert found["not_finite"] == ["train/loss"]
    assert (await ok(here, "/api/jobs/a"))["not_finite"] == ["train/loss"]
    await ok(here, "/status")


async def test_a_watch_is_bridged_and_goes_on_where_a_browser_was(
    fake: FakePodium, here: Console
) -> None:
    done = fake.jobs.known["a"] = job("a", steps=3, done=3)
    fake.jobs.updates = watched_job(done, 3)
    told = await events(here, "/api/jobs/a/watch?after=1", 100)
    assert [each["event"] for each in told][-1] == "end"
    assert told[0]["id"] == "2"
    assert [each["step"]["number"] for each in told[:-1] if each.get("step")] == [1, 2, 3]
    again = await events(here, "/api/jobs/a/watch?after=1", 100, **{"last-event-id": "4"})
    assert again[0]["id"] == "5"


async def test_a_watch_that_breaks_says_so_and_ends_so_that_the_browser_asks_again(
    fake: FakePodium, here: Console
) -> None:
    fake.jobs.updates = watched_job(fake.jobs.known["a"], 3)
    fake.jobs.break_watch_after, fake.jobs.hold_watch = [2], True
    told = await events(here, "/api/jobs/a/watch", 100)
    assert [each["event"] for each in told][-1] == "problem"
    assert told[-1]["status"] == 503


async def test_streams_end_when_the_service_drains(fake: FakePodium) -> None:
    fake.jobs.updates, fake.jobs.hold_watch = watched_job(fake.jobs.known["a"]), True
    async with console(fake) as here, here.http.stream("GET", "/api/jobs/a/watch") as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == "retry: 2000"
        here.draining.set()
        assert len([line async for line in lines if line.startswith("id")]) <= 6


async def test_what_the_coach_found_and_is_not_over_is_told_with_the_events(
    fake: FakePodium, here: Console
) -> None:
    fake.jobs.known["a"] = job("a")
    warning, recovery = jobs.EVENT_TYPE_WARNING, jobs.EVENT_TYPE_RECOVERY
    told = [
        (warning, "step 3: every group is alike (NO_VARIANCE)"),
        (warning, "step 4: a judge was away"),
        (warning, f"step 5: {'x' * 2000} (ANSWERS_CUT)"),
        (warning, "step 6: as no coach says (MADE_UP)"),
        (recovery, "step 7: groups differ again (NO_VARIANCE)"),
    ]
    fake.jobs.updates = watched_job(fake.jobs.known["a"], len(told))
    for update, (kind, message) in zip(fake.jobs.updates, told, strict=False):
        update.event.type, update.event.message = kind, message
    page = await ok(here, "/api/jobs/a/events", size=1)
    assert list(page["open"]) == ["ANSWERS_CUT"]
    assert len(page["open"]["ANSWERS_CUT"]) < 1100
    every = (await ok(here, "/api/jobs/a/events"))["events"]
    found = [each["finding"] for each in every[: len(told)]]
    assert found == ["NO_VARIANCE", "", "ANSWERS_CUT", "", "NO_VARIANCE"]


async def test_events_are_the_newest_and_older_ones_come_when_asked(
    fake: FakePodium, here: Console
) -> None:
    fake.jobs.updates = watched_job(fake.jobs.known["a"], 40)
    page = await ok(here, "/api/jobs/a/events", size=10)
    assert [each["sequence"] for each in page["events"]] == list(range(34, 44))
    assert page["last"] == 43
    older = await ok(here, "/api/jobs/a/events", size=10, before=34)
    assert [each["sequence"] for each in older["events"]] == list(range(24, 34))


async def test_evaluations_and_the_specification_are_there(fake: FakePodium, here: Console) -> None:
    fake.jobs.evaluations = evaluations()
    found = await ok(here, "/api/jobs/a/evaluations")
    assert [each["mode"] for each in found["evaluations"]].count("greedy") == 2
    assert "groups_per_step:" in (await ok(here, "/api/jobs/a"))["spec"]


async def test_10000_episodes_are_turned_page_by_page(fake: FakePodium, here: Console) -> None:
    fake.jobs.trajectories = [
        trajectory(f"a/s{s}/g{g}/t{t}") for s in range(1, 5) for g in range(8) for t in range(8)
    ]
    first = await ok(here, "/api/jobs/a/episodes", step=2)
    second = await ok(here, "/api/jobs/a/episodes", step=2, after=first["next"])
    assert (len(first["episodes"]), len(second["episodes"]), second["next"]) == (50, 14, "")
    assert first["episodes"][0]["id"] == "a/s2/g0/t0"
    found = await ok(here, "/api/jobs/a/episode", id="a/s3/g7/t7")
    assert [each["role"] for each in found["messages"]] == ["user", "assistant"]
    assert found["parts"] == {"ruler": 0.5}


async def test_a_long_text_comes_whole_by_slices_and_an_episode_by_windows(
    fake: FakePodium, here: Console
) -> None:
    long = "".join(f"{n}😀<b>&" for n in range(60_000))
    said = [long, "short"] + [f"{n} " + "x" * 4000 for n in range(300)]
    fake.jobs.trajectories = [trajectory("a/s1/g0/t0", *said, explanation=long)]
    where = {"id": "a/s1/g0/t0"}
    page = await ok(here, "/api/jobs/a/episode", **where)
    cut = page["messages"][0]["content"]
    assert cut["chars"] == len(long)
    text, at = cut["text"], len(cut["text"])
    while at is not None:
        piece = await ok(here, "/api/jobs/a/episode/text", **where, message=0, offset=at)
        text, at = text + piece["text"], piece["next"]
    assert text == long
    shown = page["messages"]
    while page["next"] is not None:
        page = await ok(here, "/api/jobs/a/episode", **where, start=page["next"])
        shown += page["messages"]
    assert [each["index"] for each in shown] == list(range(302))


async def test_an_episode_tells_how_its_judges_were_asked(fake: FakePodium, here: Console) -> None:
    fake.jobs.known["w"] = job("w", 3, 3)
    fake.jobs.trajectories = [wild_episode()]
    page = await ok(here, "/api/jobs/w/episode", id="w/s3/g0/t1")
    ruler, gone, rubric = page["opinions"]
    # More than JavaScript's numbers hold.
    assert (ruler["seed"], ruler["score"], ruler["place"]) == (str(2**62), 0.25, 3)
    assert (ruler["temperature"], ruler["refused"]) == (0.5, "response_format")
    assert (gone["score"], gone["temperature"], gone["seed"]) == (None, None, "")
    assert gone["failure"].startswith("no answer")
    assert (rubric["prompt_digest"], rubric["finish_reason"]) == ("12" * 32, "stop")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/jobs/none", 404),
        ("/api/jobs/none/watch", 404),
        ("/api/jobs/a/watch?after=x", 400),
        ("/api/jobs/a/episode?id=a/s1/g0/t0", 404),
        ("/api/jobs/a/episode?id=nonsense", 400),
        ("/api/jobs/a/episodes?step=-1", 400),
        ("/api/jobs/a/episodes?step=99999999999999999999", 400),
        ("/api/jobs/a/episodes?size=1000000", 400),
        ("/api/models/none/x/lineage", 400),
        ("/api/nothing", 404),
    ],
)
async def test_bad_questions_have_the_status_that_fits_and_words(
    here: Console, path: str, status: int
) -> None:
    answer = await here.http.get(path)
    assert (answer.status_code, bool(answer.json()["error"]["message"])) == (status, True)


async def test_pause_resume_cancel_and_what_cannot_be(fake: FakePodium, here: Console) -> None:
    async def act(name: str, of: str = "a") -> tuple[int, Any]:
        answer = await here.http.post(f"/api/jobs/{of}/{name}", json={}, headers=MARK)
        return answer.status_code, answer.json()

    assert (await act("pause"))[1]["state"] == "pausing"
    assert (await act("resume"))[1]["state"] == "queued"
    assert (await act("cancel"))[1]["state"] == "cancelling"
    fake.jobs.known["done"] = job("done")
    status, body = await act("cancel", "done")
    assert (status, body["error"]["reason"]) == (409, "JOB_ENDED")
    assert (await act("explode"))[0] == 400


async def test_a_service_that_is_away_or_silent_is_named_and_nothing_hangs() -> None:
    gone = Addresses(*["127.0.0.1:1"] * 5)
    async with console(gone, call_seconds=0.3) as here:
        for path in ("/status", "/api/jobs", "/api/jobs/a", "/api/models", "/session"):
            answer = await here.http.get(path)
            assert answer.status_code in (503, 504), path
            assert "127.0.0.1" not in answer.json()["error"]["message"]
        pools = (await here.http.get("/api/pools")).json()["pools"]
        assert pools[0]["problem"]
        assert (await here.http.get("/")).status_code == 200


async def talk(here: Console, **body: Any) -> tuple[int, list[Any]]:
    said = {"policy": "", "messages": [{"role": "user", "content": "one two"}], **body}
    headers = {**MARK, "content-type": "application/json"}
    # As ASCII, in which JSON can say half of a character.
    answer = await here.http.post("/api/chat", content=json.dumps(said), headers=headers)
    return answer.status_code, [json.loads(line) for line in answer.text.splitlines()]


async def test_an_answer_of_a_chat_comes_in_pieces(fake: FakePodium, here: Console) -> None:
    fake.registry.publish("a", 3, {})
    fake.inference.loaded.append(("a", 3))
    status, pieces = await talk(here, policy="a@latest", temperature=0, max_tokens=9)
    assert (status, "".join(piece["text"] for piece in pieces)) == (200, "two one ")
    assert pieces[-1]["finish_reason"] == "stop"
    (asked,) = fake.inference.chats
    assert (asked.policy.version, asked.sampling.max_tokens) == (3, 9)


async def test_what_a_pool_does_not_serve_is_loaded_when_one_says_so_alone(
    fake: FakePodium, here: Console
) -> None:
    fake.inference.merged = True
    fake.jobs.known["b"] = job("b")
    fake.inference.loaded.append(("b", 18))
    status, (refusal,) = await talk(here, policy="a@3")
    assert (status, refusal["error"]["reason"]) == (409, "NOT_SERVED")
    assert (await talk(here))[0] == 409, "the base model is not served beside merged weights"
    answer = await here.http.post("/api/load", json={"policy": "a@3"}, headers=MARK)
    assert answer.json() == {"gave_way": [{"job": "b", "version": 18}]}
    assert (await talk(here, policy="a@3"))[0] == 200


async def test_what_a_running_job_needs_gives_way_to_no_chat(
    fake: FakePodium, here: Console
) -> None:
    fake.inference.merged = True
    fake.inference.loaded.append(("a", 3))
    answer = await here.http.post("/api/load", json={"policy": "b@1"}, headers=MARK)
    assert (answer.status_code, answer.json()["error"]["reason"]) == (409, "POOL_IN_USE")
    assert fake.inference.loaded == [("a", 3)]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "x"}, "messages"),
        ({"messages": [{"role": "root", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": [], "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 1}]}, "content"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "content"),
        ({"temperature": 9}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"policy": "A B"}, "policy"),
    ],
)
async def test_what_is_wrong_with_a_chat_is_named(
    here: Console, body: dict[str, Any], field: str
) -> None:
    status, (refusal,) = await talk(here, **body)
    assert (status, refusal["error"]["violations"][0]["field"]) == (400, field)


async def test_a_job_file_is_checked_as_the_command_line_does_and_made_once(
    fake: FakePodium, here: Console
) -> None:
    async def send(text: str, **more: Any) -> Any:
        answer = await here.http.post("/api/jobs", json={"text": text, **more}, headers=MARK)
        return answer.status_code, answer.json()

    status, body = await send("base_model: m\ntraining:\n  steps: -1\n  stepz: 3\n")
    told = {each["field"]: each["line"] for each in body["error"]["violations"]}
    assert (status, told["training.steps"], told["training.stepz"]) == (400, 3, 4)
    for text in ("{", "a: &x [*x]", "\x00", "[" * 5000, "null", "- 1"):
        assert (await send(text))[0] == 400, text[:10]
    text = "base_model: m\nenvironment: {name: email_search}\ntraining: {steps: 3}\n"
    status, body = await send(text, dry_run=True)
    assert (status, "groups_per_step:" in body["job"]["spec"]) == (200, True)
    assert set(fake.jobs.known) == {"a"}
    made = [await send(text, id="new", request_id="r") for _ in range(2)]
    assert [(status, body["job"]["id"]) for status, body in made] == [(200, "new")] * 2
    assert (await send(text, id="new", request_id="s"))[0] == 409
