"""From what a cluster says of a trainer's pods to what is done about it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from podium_controller.cluster.pod_status import (
    Ended,
    Placement,
    PodVerdict,
    TrainerAction,
    TrainerPod,
    Watchman,
    judge,
)
from podium_controller.domain.waits import Wait

NO_ROOM = "0/50 nodes are available: 50 Insufficient nvidia.com/gpu."


def pod(index: int = 0, **changes: object) -> TrainerPod:
    fields = {"uid": f"uid-{index}", "name": f"t-{index}", "index": index, **changes}
    return TrainerPod(**fields)  # type: ignore[arg-type]


def ended(exit_code: int, reason: str = "Error", message: str = "") -> Ended:
    return Ended("trainer", exit_code, reason, message)


@pytest.mark.parametrize(
    ("status", "verdict", "reason", "words"),
    [
        ({}, PodVerdict.WAIT, "TRAINER_STARTING", "is being created"),
        ({"phase": "Running"}, PodVerdict.WAIT, "TRAINER_STARTING", "starts"),
        ({"phase": "Running", "ready": True, "ip": "10.0.0.1"}, PodVerdict.READY, "", ""),
        ({"phase": "Running", "ready": True}, PodVerdict.WAIT, "TRAINER_STARTING", "starts"),
        (
            {"unscheduled": Wait("Unschedulable", NO_ROOM)},
            PodVerdict.WAIT,
            "TRAINER_UNSCHEDULABLE",
            NO_ROOM,
        ),
        (
            {"unscheduled": Wait("SchedulingGated", "Scheduling is blocked")},
            PodVerdict.WAIT,
            "TRAINER_QUEUED",
            "scheduling gate",
        ),
        (
            {"waiting": Wait("ImagePullBackOff", 'Back-off pulling image "podium/trainer:1"')},
            PodVerdict.WAIT,
            "TRAINER_IMAGE_PULL",
            "Back-off pulling image",
        ),
        (
            {"waiting": Wait("ErrImageNeverPull", "is not present")},
            PodVerdict.WAIT,
            "TRAINER_IMAGE_PULL",
            "ErrImageNeverPull",
        ),
        (
            {"waiting": Wait("CreateContainerConfigError", 'secret "podium-auth" not found')},
            PodVerdict.WAIT,
            "TRAINER_CONTAINER_CONFIG",
            'secret "podium-auth" not found',
        ),
        (
            {"waiting": Wait("InvalidImageName", "couldn't parse image reference")},
            PodVerdict.HOPELESS,
            "TRAINER_IMAGE_INVALID",
            "couldn't parse",
        ),
        (
            {"waiting": Wait("ContainerCreating", "")},
            PodVerdict.WAIT,
            "TRAINER_STARTING",
            "created",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"},
            PodVerdict.TAKEN,
            "TRAINER_EVICTED",
            "low on memory",
        ),
        (
            {
                "phase": "Failed",
                "ended": ended(137),
                "disruption": Wait("PreemptionByScheduler", "preempting to accommodate another"),
            },
            PodVerdict.TAKEN,
            "TRAINER_EVICTED",
            "PreemptionByScheduler",
        ),
        (
            {"phase": "Failed", "reason": "NodeLost"},
            PodVerdict.TAKEN,
            "TRAINER_EVICTED",
            "NodeLost",
        ),
        (
            {"phase": "Failed", "reason": "OutOfcpu"},
            PodVerdict.TAKEN,
            "TRAINER_EVICTED",
            "OutOfcpu",
        ),
        (
            {"phase": "Running", "ready": True, "leaving": True},
            PodVerdict.TAKEN,
            "TRAINER_EVICTED",
            "was deleted",
        ),
        # SIGTERM of a deletion, obeyed and not.
        (
            {"phase": "Succeeded", "leaving": True, "ended": ended(0)},
            PodVerdict.TAKEN,
            "TRAINER_EVICTED",
            "was deleted",
        ),
        (
            {"phase": "Failed", "leaving": True, "ended": ended(143)},
            PodVerdict.TAKEN,
            "TRAINER_EVICTED",
            "was deleted",
        ),
        (
            {"phase": "Failed", "ended": ended(137, "OOMKilled")},
            PodVerdict.CRASHED,
            "TRAINER_OUT_OF_MEMORY",
            "outgrew its memory limit",
        ),
        (
            {"phase": "Failed", "leaving": True, "ended": ended(137, "OOMKilled")},
            PodVerdict.CRASHED,
            "TRAINER_OUT_OF_MEMORY",
            "outgrew its memory limit",
        ),
        (
            {"phase": "Failed", "ended": ended(2, message="PODIUM_TRAINER_PORT: got 'x'")},
            PodVerdict.HOPELESS,
            "TRAINER_MISCONFIGURED",
            "PODIUM_TRAINER_PORT: got 'x'",
        ),
        (
            {"phase": "Failed", "ended": Ended("models", 2, "Error")},
            PodVerdict.CRASHED,
            "TRAINER_CRASHED",
            "its container models ended with exit code 2",
        ),
        (
            {"phase": "Failed", "ended": ended(1, message="CUDA error: no device")},
            PodVerdict.CRASHED,
            "TRAINER_CRASHED",
            "CUDA error: no device",
        ),
        (
            {"phase": "Succeeded", "ended": ended(0)},
            PodVerdict.CRASHED,
            "TRAINER_CRASHED",
            "code 0",
        ),
    ],
)
def test_what_a_pods_status_means(
    status: dict[str, object], verdict: PodVerdict, reason: str, words: str
) -> None:
    found = judge(pod(**status))
    assert found.verdict is verdict
    assert found.why.reason == reason
    assert words in found.why.message


def test_without_a_job_one_is_made() -> None:
    assert Watchman(6).look(Placement()).action is TrainerAction.CREATE


def test_the_first_machine_ready_is_the_trainer_ready() -> None:
    first = pod(phase="Running", ready=True, ip="10.0.0.1")
    decision = Watchman(6).look(Placement("job", pods=(first, pod(1, phase="Running")), nodes=2))
    assert (decision.action, decision.pod) == (TrainerAction.OPEN, first)


def test_the_machine_that_has_no_room_says_why_all_wait() -> None:
    pods = (pod(phase="Running"), pod(1, unscheduled=Wait("Unschedulable", NO_ROOM)))
    decision = Watchman(6).look(Placement("job", nodes=2, pods=pods))
    assert decision.action is TrainerAction.WAIT
    assert decision.why == Wait("TRAINER_UNSCHEDULABLE", NO_ROOM)


def test_a_suspended_job_waits_in_its_queue() -> None:
    decision = Watchman(6).look(Placement("job", suspended=True, queue="team-a"))
    assert (decision.action, decision.why.reason) == (TrainerAction.WAIT, "TRAINER_QUEUED")
    assert "'team-a'" in decision.why.message


@pytest.mark.parametrize(
    ("message", "action", "reason"),
    [
        ("pods is forbidden: exceeded quota: q, used: 8", TrainerAction.WAIT, "TRAINER_OVER_QUOTA"),
        ("pods is forbidden: violates PodSecurity", TrainerAction.FAIL, "TRAINER_FORBIDDEN"),
    ],
)
def test_pods_that_the_cluster_refuses(message: str, action: TrainerAction, reason: str) -> None:
    decision = Watchman(6).look(Placement("job", refused=Wait("FailedCreate", message)))
    assert (decision.action, decision.why) == (action, Wait(reason, message))


def test_a_refusal_that_is_over_is_not_held_against_the_job() -> None:
    old = Wait("FailedCreate", "violates PodSecurity")
    decision = Watchman(6).look(Placement("job", refused=old, pods=(pod(phase="Running"),)))
    assert decision.why.reason == "TRAINER_STARTING"


def watched(restarts: int = 2) -> Watchman:
    """One that has opened a trainer before."""
    watchman = Watchman(restarts)
    up = Placement("job", pods=(pod(phase="Running", ready=True, ip="10.0.0.1"),))
    assert watchman.look(up).action is TrainerAction.OPEN
    watchman.settle()
    return watchman


def crash(number: int, index: int = 0, **changes: object) -> TrainerPod:
    fields: dict[str, object] = {"phase": "Failed", "ended": ended(1), **changes}
    return pod(index, uid=f"crash-{index}-{number}", **fields)


def test_an_eviction_is_told_and_not_counted() -> None:
    watchman = watched()
    gone = crash(1, reason="Evicted", message="low on memory")
    decision = watchman.look(Placement("job", pods=(gone,)))
    assert decision.action is TrainerAction.WAIT
    assert decision.news == (Wait("TRAINER_EVICTED", "Evicted: low on memory"),)
    again = Placement(
        "job", pods=(gone, pod(uid="new", phase="Running", ready=True, ip="10.0.0.1"))
    )
    decision = watchman.look(again)
    assert (decision.action, decision.news) == (TrainerAction.OPEN, ())
    assert watchman.settle()
    assert not watchman.settle()


def test_a_crash_is_told_counted_and_in_the_end_fatal() -> None:
    watchman = watched(restarts=2)
    crashes: tuple[TrainerPod, ...] = ()
    for number in range(2):
        crashes += (crash(number, ended=ended(137, "OOMKilled")),)
        decision = watchman.look(Placement("job", pods=crashes))
        assert decision.action is TrainerAction.WAIT
        assert decision.why.reason == "TRAINER_OUT_OF_MEMORY"
        assert "it starts again" in decision.why.message
        assert len(decision.news) == 1
    decision = watchman.look(Placement("job", pods=(*crashes, crash(9))))
    assert (decision.action, decision.why.reason) == (TrainerAction.FAIL, "TRAINER_CRASHED")
    assert "3 times in a row" in decision.why.message


def test_crashes_are_forgotten_when_the_trainer_is_back() -> None:
    watchman = watched(restarts=1)
    crashes: tuple[TrainerPod, ...] = ()
    for number in range(5):
        crashes += (crash(number),)
        assert watchman.look(Placement("job", pods=crashes)).action is TrainerAction.WAIT
        up = pod(uid=f"up-{number}", phase="Running", ready=True, ip="10.0.0.1")
        assert watchman.look(Placement("job", pods=(*crashes, up))).action is TrainerAction.OPEN
        assert not watchman.settle()


def test_an_eviction_of_one_machine_excuses_the_crashes_of_the_others() -> None:
    watchman = watched(restarts=0)
    pods: tuple[TrainerPod, ...] = ()
    for number in range(4):
        pods += (crash(number, 1, reason="Evicted"), crash(number), crash(number, 2))
        assert watchman.look(Placement("job", nodes=3, pods=pods)).action is TrainerAction.WAIT
    assert watchman.settle()


def test_crashes_of_a_former_run_are_not_this_ones() -> None:
    old = tuple(crash(number) for number in range(5))
    decision = Watchman(1).look(Placement("job", pods=(*old, pod(phase="Running"))))
    assert (decision.action, decision.why.reason) == (TrainerAction.WAIT, "TRAINER_STARTING")
    assert decision.news == ()


def test_a_pod_that_can_never_start_fails_the_job_whoever_sees_it_first() -> None:
    hopeless = crash(1, ended=ended(2, message="PODIUM_TRAINER_PORT: got 'x'"))
    for watchman in (Watchman(6), watched()):
        decision = watchman.look(Placement("job", pods=(hopeless,)))
        assert (decision.action, decision.why.reason) == (
            TrainerAction.FAIL,
            "TRAINER_MISCONFIGURED",
        )


@pytest.mark.parametrize(
    ("state", "action", "reason"),
    [
        ({"complete": True}, TrainerAction.REPLACE, ""),
        ({"failed": Wait("BackoffLimitExceeded", "")}, TrainerAction.REPLACE, ""),
        (
            {"failed": Wait("PodFailurePolicy", "exit 2")},
            TrainerAction.FAIL,
            "TRAINER_MISCONFIGURED",
        ),
        ({"failed": Wait("DeadlineExceeded", "")}, TrainerAction.FAIL, "TRAINER_DEADLINE_EXCEEDED"),
    ],
)
def test_a_job_that_has_ended(state: dict[str, object], action: TrainerAction, reason: str) -> None:
    decision = Watchman(6).look(replace(Placement("job"), **state))  # type: ignore[arg-type]
    assert (decision.action, decision.why.reason) == (action, reason)


def test_a_job_that_somebody_deleted_was_taken() -> None:
    watchman = watched()
    assert watchman.look(Placement()).action is TrainerAction.CREATE
    up = Placement("another", pods=(pod(uid="new", phase="Running", ready=True, ip="10.0.0.1"),))
    assert watchman.look(up).action is TrainerAction.OPEN
    assert watchman.settle()


def test_a_job_that_gave_up_is_replaced_and_its_crashes_still_count() -> None:
    watchman = watched(restarts=1)
    gave_up = Placement("job", failed=Wait("BackoffLimitExceeded", ""), pods=(crash(1),))
    assert watchman.look(gave_up).action is TrainerAction.REPLACE
    assert watchman.look(Placement()).action is TrainerAction.CREATE
    decision = watchman.look(Placement("another", pods=(crash(2),)))
    assert (decision.action, decision.why.reason) == (TrainerAction.FAIL, "TRAINER_CRASHED")
    watchman = watched(restarts=1)
    assert watchman.look(gave_up).action is TrainerAction.REPLACE
    up = Placement("another", pods=(pod(uid="new", phase="Running", ready=True, ip="10.0.0.1"),))
    assert watchman.look(up).action is TrainerAction.OPEN
    assert not watchman.settle()
