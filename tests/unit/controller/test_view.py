"""From what watches tell to the placement of a job."""

from __future__ import annotations

from typing import Any

import pytest
from podium.kit.kubernetes.object_template import Manifest
from podium_controller.cluster.pod_status import Ended, Placement
from podium_controller.cluster.view import ClusterView, pod_of
from podium_controller.domain.waits import Wait


def kubernetes_job(uid: str = "u1", job_id: str = "a", **changes: Any) -> Manifest:
    return {
        "metadata": {
            "uid": uid,
            "labels": {"podium.dev/job": job_id, "kueue.x-k8s.io/queue-name": "q"},
            **changes.pop("metadata", {}),
        },
        "spec": {"completions": 2, **changes.pop("spec", {})},
        "status": changes,
    }


def kubernetes_pod(uid: str, owner: str = "u1", job_id: str = "a", **changes: Any) -> Manifest:
    return {
        "metadata": {
            "uid": uid,
            "name": f"pod-{uid}",
            "creationTimestamp": "2026-01-01T00:00:10Z",
            "labels": {"podium.dev/job": job_id},
            "annotations": {"batch.kubernetes.io/job-completion-index": "1"},
            "ownerReferences": [{"uid": owner, "controller": True}],
            **changes.pop("metadata", {}),
        },
        "status": {"phase": "Running", **changes},
    }


def refusal(at: str, message: str = "no") -> Manifest:
    return {
        "metadata": {"uid": "event"},
        "involvedObject": {"uid": "u1"},
        "reason": "FailedCreate",
        "message": message,
        "lastTimestamp": at,
    }


@pytest.fixture
def news() -> list[str]:
    return []


@pytest.fixture
def view(news: list[str]) -> ClusterView:
    return ClusterView(news.append)


def test_a_job_and_its_pods_in_whatever_order_they_come(view: ClusterView, news: list[str]) -> None:
    view.change_pod("ADDED", kubernetes_pod("p1"))
    assert view.placement("a") == Placement()
    view.change_job("ADDED", kubernetes_job())
    found = view.placement("a")
    assert (found.uid, found.nodes, found.queue, found.suspended) == ("u1", 2, "q", False)
    assert [(pod.uid, pod.index) for pod in found.pods] == [("p1", 1)]
    assert view.placement("b") == Placement()
    assert news == ["a", "a"]


def test_a_deleted_pod_stays_known_as_gone_until_its_job_goes(view: ClusterView) -> None:
    view.change_job("ADDED", kubernetes_job())
    view.change_pod("ADDED", kubernetes_pod("p1"))
    view.change_pod("DELETED", kubernetes_pod("p1"))
    assert [pod.leaving for pod in view.placement("a").pods] == [True]
    view.change_job("DELETED", kubernetes_job())
    assert view.placement("a") == Placement()
    # News of its pods that are still on their way leave nothing behind.
    view.change_pod("MODIFIED", kubernetes_pod("p2"))
    view.change_pod("DELETED", kubernetes_pod("p2"))
    assert view._pods == {}


def test_what_was_missed_between_two_lists_is_seen_as_gone(
    view: ClusterView, news: list[str]
) -> None:
    view.set_jobs([kubernetes_job(), kubernetes_job("u2", "b")])
    view.set_pods([kubernetes_pod("p1"), kubernetes_pod("p2"), kubernetes_pod("p3", "u2", "b")])
    news.clear()
    view.set_pods([kubernetes_pod("p2")])
    assert {pod.uid: pod.leaving for pod in view.placement("a").pods} == {"p1": True, "p2": False}
    assert [pod.leaving for pod in view.placement("b").pods] == [True]
    view.set_jobs([kubernetes_job("u2", "b")])
    assert view.placement("a") == Placement()
    assert {"a", "b"} <= set(news)


def test_a_job_that_we_removed_does_not_come_back_by_old_news(view: ClusterView) -> None:
    view.change_job("ADDED", kubernetes_job())
    view.remove_job("u1")
    view.change_job("MODIFIED", kubernetes_job())
    assert view.job_ids == {}
    view.change_job("DELETED", kubernetes_job())
    view.change_job("ADDED", kubernetes_job("u2"))
    assert view.job_ids == {"u2": "a"}


def test_a_job_that_is_going_away_is_none(view: ClusterView) -> None:
    view.change_job("ADDED", kubernetes_job())
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    view.change_job("MODIFIED", kubernetes_job(metadata=leaving))
    assert view.placement("a") == Placement()


def test_conditions_of_a_job(view: ClusterView) -> None:
    failed = {
        "type": "Failed",
        "status": "True",
        "reason": "BackoffLimitExceeded",
        "message": "Job has reached the specified backoff limit",
    }
    other = {"type": "Complete", "status": "False"}
    view.change_job("ADDED", kubernetes_job(spec={"suspend": True}, conditions=[failed, other]))
    found = view.placement("a")
    assert found.failed == Wait(failed["reason"], failed["message"])
    assert found.suspended
    assert not found.complete


@pytest.mark.parametrize(
    ("at", "counts"), [("2026-01-01T00:00:09Z", False), ("2026-01-01T00:00:11Z", True)]
)
def test_a_refusal_before_the_newest_pod_is_over(view: ClusterView, at: str, counts: bool) -> None:
    view.change_job("ADDED", kubernetes_job())
    view.change_refusal("ADDED", refusal(at, "exceeded quota"))
    assert view.placement("a").refused == Wait("FailedCreate", "exceeded quota")
    view.change_pod("ADDED", kubernetes_pod("p1"))
    assert (view.placement("a").refused is not None) is counts
    view.change_refusal("DELETED", refusal(at))
    assert view.placement("a").refused is None


def test_of_one_job_only_so_many_ended_pods_are_kept(view: ClusterView) -> None:
    view.change_job("ADDED", kubernetes_job())
    view.change_pod("ADDED", kubernetes_pod("alive"))
    for number in range(200):
        view.change_pod("ADDED", kubernetes_pod(str(number), phase="Failed"))
    kept = [pod.uid for pod in view.placement("a").pods]
    assert kept == ["alive", *map(str, range(136, 200))]


def test_a_pods_status() -> None:
    found = pod_of(
        kubernetes_pod(
            "p",
            phase="Failed",
            podIP="10.0.0.1",
            reason="Evicted",
            message="low on memory",
            conditions=[
                {"type": "Ready", "status": "False"},
                {"type": "PodScheduled", "status": "True"},
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "TerminationByKubelet",
                    "message": "evicted",
                },
            ],
            containerStatuses=[
                {
                    "name": "proxy",
                    "state": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:02Z"}},
                },
                {
                    "name": "trainer",
                    "state": {
                        "terminated": {
                            "exitCode": 137,
                            "reason": "OOMKilled",
                            "message": "x" * 600 + "the end\n",
                            "finishedAt": "2026-01-01T00:00:01Z",
                        }
                    },
                },
            ],
        )
    )
    assert (found.phase, found.ip, found.ready, found.reason) == (
        "Failed",
        "10.0.0.1",
        False,
        "Evicted",
    )
    assert found.disruption == Wait("TerminationByKubelet", "evicted")
    assert found.unscheduled is None
    # The first that failed, and the end of what it said.
    assert found.ended is not None
    assert found.ended == Ended("trainer", 137, "OOMKilled", found.ended.message)
    assert found.ended.message.endswith("the end")
    assert len(found.ended.message) == 500


def test_what_a_container_waits_for() -> None:
    waiting = {"reason": "ErrImagePull", "message": "not found"}
    found = pod_of(
        kubernetes_pod(
            "p",
            phase="Pending",
            initContainerStatuses=[{"name": "models", "state": {"waiting": waiting}}],
            containerStatuses=[
                {"name": "trainer", "state": {"waiting": {"reason": "PodInitializing"}}}
            ],
        )
    )
    assert found.waiting == Wait("ErrImagePull", "not found")


def test_a_pod_that_has_no_status_yet() -> None:
    found = pod_of({"metadata": {"uid": "p", "name": "p", "labels": {}}, "status": {}})
    assert (found.phase, found.index, found.ip, found.ended) == ("Pending", 0, "", None)
