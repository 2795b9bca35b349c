"""Langfuse, row S32: its real client, against a server that records."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator

import pytest
from podium_tracking.adapters.langfuse_tracker import LangfuseTracker
from podium_tracking.domain.trackers import TrackerError
from support.trackers import LangfuseServer, langfuse_server
from support.tracking import CREATED, JOB, MODEL, Ledger, deliver, episode, job_of


@pytest.fixture
def server() -> Iterator[LangfuseServer]:
    with langfuse_server() as found:
        yield found


def tracker(server: LangfuseServer) -> LangfuseTracker:
    # The client keeps what it has for a key as long as its process lives.
    return LangfuseTracker(uuid.uuid4().hex, "sk", server.url)


async def test_s32_a_trace_an_episode_and_a_span_an_action(server: LangfuseServer) -> None:
    ledger = Ledger(job_of({"langfuse": {}}))
    turns = [
        ("search: meeting", 0.3, {"found_emails": 15}),
        ("select_email: 123", 0.55, {"selected": "email_123"}),
    ]
    ledger.kept[0] = episode(1, 0, turns)
    ledger.kept[0].histories[0].messages[2].reasoning = "By its subject?"
    ledger.kept[1] = episode(1, 1, turns[:1], success=False, reward=0.0, failure="TimeoutError")
    assert await deliver(ledger, tracker(server))

    [key] = {each.removeprefix("Basic ") for each in server.keys}
    assert base64.b64decode(key).endswith(b":sk")
    episodes = server.named("episode_")
    assert len(episodes) == 6
    assert len({each.trace for each in server.observations.values()}) == 7
    assert {each.attributes["session.id"] for each in server.observations.values()} == {JOB}

    [first] = [each for each in episodes if each.name == f"episode_{JOB}/s1/g0/t0"]
    assert first.attributes["langfuse.trace.name"] == first.name
    assert first.value("output") == {
        "final_result": {"selected": "email_123"},
        "total_reward": 0.85,
        "success": True,
    }
    assert first.value("input")["task_description"] == "inbox-1"
    assert first.value("metadata.model_name") == MODEL
    assert first.value("metadata.agent_type") == "email_search"

    spans = [each for each in server.of(first.trace) if each.type == "span"]
    assert [each.name for each in sorted(spans, key=lambda each: each.start)] == [
        "action_0_search",
        "action_1_select_email",
    ]
    last = max(spans, key=lambda each: each.start)
    assert last.parent == first.id
    assert last.value("input") == {
        "state": {"found_emails": 15},
        "action_type": "select_email",
        "parameters": "123",
    }
    assert last.value("output")["reward"] == 0.55
    assert last.value("output")["next_state"] == {"selected": "email_123"}
    # What it thought, and where nothing is known of that, what it said.
    [thought] = [each for each in spans if each is not last]
    assert thought.value("metadata.reasoning") == "By its subject?"
    assert last.value("metadata.reasoning") == "select_email: 123"
    assert last.value("metadata.execution_time") == 1.0
    assert (first.start, last.end) == ((CREATED + 1) * 10**9, (CREATED + 3) * 10**9)

    generations = [each for each in server.of(first.trace) if each.type == "generation"]
    assert {each.name for each in generations} == {"agent_action_generation"}
    [said] = [each for each in generations if each.parent == last.id]
    assert said.attributes["langfuse.observation.model.name"] == MODEL
    assert said.value("output") == "select_email: 123"
    assert [each["role"] for each in said.value("input")] == ["system", "user", "assistant", "user"]
    assert said.value("metadata.token_count") == 7

    [broken] = [each for each in episodes if each.name == f"episode_{JOB}/s1/g0/t1"]
    assert broken.attributes["langfuse.observation.level"] == "ERROR"
    assert broken.attributes["langfuse.observation.status_message"] == "TimeoutError: it broke"

    [session] = server.named("training_session_")
    assert session.value("output")["total_episodes"] == 6
    assert session.value("input")["config"]["base_model"] == MODEL
    assert not server.unknown


async def test_s32_what_is_sent_again_is_there_once(server: LangfuseServer) -> None:
    ledger = Ledger(job_of({"langfuse": {}}))
    # A process that died after the second step's episodes.
    died = tracker(server)
    died.open(ledger.job)
    died.episodes(1, ledger.kept[:2])
    died.episodes(2, ledger.kept[2:3])
    received = server.received
    assert received == 3 * 3

    assert await deliver(ledger, tracker(server))
    assert len(server.named("episode_")) == 6
    # The second step again, as some of it may be missing; the first no more.
    assert server.received == received + 4 * 3 + 1

    assert await deliver(ledger, tracker(server))
    assert server.received == received + 4 * 3 + 1


async def test_spans_that_langfuse_did_not_take_are_not_taken_for_sent(
    server: LangfuseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium_tracking.adapters.langfuse_tracker._TIMEOUT_SECONDS", 0.2)
    ledger = Ledger(job_of({"langfuse": {}}))
    found = tracker(server)
    found.open(ledger.job)
    server.refuses = True
    with pytest.raises(TrackerError, match="did not take"):
        found.episodes(1, ledger.kept[:1])
