"""OpenPipe, row S45: each completion is reported, and later its reward."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openpipe.client import OpenPipe
from podium_tracking.adapters.openpipe_tracker import OpenPipeTracker
from podium_tracking.domain.trackers import TrackerError
from support.trackers import OpenPipeServer, openpipe_server
from support.tracking import JOB, MODEL, Ledger, deliver, episode, job_of


@pytest.fixture
def server() -> Iterator[OpenPipeServer]:
    with openpipe_server() as found:
        yield found


def tracker(server: OpenPipeServer) -> OpenPipeTracker:
    return OpenPipeTracker("opk", server.url)


async def test_s45_each_completion_arrives_with_metadata_and_later_its_reward(
    server: OpenPipeServer,
) -> None:
    ledger = Ledger(job_of({"openpipe": {}}), steps=1)
    turns = [("search: ümläut", 0.3, {"n": 1}), ("select: 1", 0.5, {"n": 2})]
    ledger.kept = [episode(1, 0, turns), episode(1, 1, success=False, reward=-0.25)]
    ledger.kept[0].histories[0].messages[2].reasoning = "By its subject?"
    assert await deliver(ledger, tracker(server))
    assert server.keys == {"Bearer opk"}
    assert len(server.reports) == 3
    first, second, third = server.reports
    assert first["reqPayload"]["model"] == MODEL
    assert [each["role"] for each in second["reqPayload"]["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    assert first["respPayload"]["choices"][0]["message"] == {
        "role": "assistant",
        "content": "search: ümläut",
        "reasoning_content": "By its subject?",
    }
    assert first["statusCode"] == 200
    metadata = first["reqPayload"]["metadata"]
    assert (metadata["podium_job"], metadata["step"], metadata["action"]) == (JOB, "1", "search")
    assert [each["reqPayload"]["metadata"]["reward"] for each in server.reports] == [
        "0.85",
        "0.85",
        "-0.25",
    ]
    assert third["reqPayload"]["metadata"]["success"] == "false"
    paths = [path for path, _ in server.calls]
    rewarded = [
        at for at, (_, body) in enumerate(server.calls) if "reward" in body.get("metadata", {})
    ]
    assert paths.index("/api/v1/report") < rewarded[0]


async def test_s45_a_second_process_reports_only_what_is_missing(server: OpenPipeServer) -> None:
    ledger = Ledger(job_of({"openpipe": {}}))
    died = tracker(server)
    died.open(ledger.job)
    died.episodes(1, ledger.kept[:2])
    died.episodes(2, ledger.kept[2:3])
    assert await deliver(ledger, tracker(server))
    said = [each["respPayload"]["id"] for each in server.reports]
    assert len(said) == len(set(said)) == 6
    assert await deliver(ledger, tracker(server))
    assert len(server.reports) == 6


def test_s45_the_calls_are_those_of_openpipes_own_client(server: OpenPipeServer) -> None:
    client = OpenPipe(api_key="opk", base_url=server.url)
    client.report(
        requested_at=1,
        received_at=2,
        req_payload={"model": MODEL, "messages": [], "metadata": {"podium_job": "theirs"}},
        resp_payload={"id": "x"},
        status_code=200,
    )
    answer = client.update_log_metadata(
        filters=[{"field": "metadata.podium_job", "equals": "theirs"}],  # type: ignore[list-item]
        metadata={"reward": "1"},
    )
    assert answer.matched_logs == 1
    theirs = dict(server.calls)
    server.calls.clear()
    ours = tracker(server)
    ledger = Ledger(job_of({"openpipe": {}}))
    ours.open(ledger.job)
    ours.episodes(1, ledger.kept[:1])
    for path, body in server.calls:
        assert set(body) == set(theirs[path]), path
    assert server.keys == {"Bearer opk"}


def test_an_answer_that_says_nothing_is_no_delivery(server: OpenPipeServer) -> None:
    server.refuses = True
    with pytest.raises(TrackerError, match="503"):
        tracker(server).open(job_of({"openpipe": {}}))
