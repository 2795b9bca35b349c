"""What a cluster says of a job's trainer, and what follows from it. The adapter fills it in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from podium_controller.domain.waits import TRAINER_STARTING, Wait

TRAINER_CONTAINER = "trainer"
_NOTHING = Wait("", "")
BAD_SETTINGS = 2
"""How `podium.kit.rpc.load_settings`, and Python's own argument parsers, end a process."""


@dataclass(frozen=True)
class Ended:
    """How a container ended."""

    container: str
    exit_code: int
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class TrainerPod:
    """One pod of a trainer, of the process group's `index`-th machine."""

    uid: str
    name: str
    index: int = 0
    phase: str = "Pending"
    ip: str = ""
    ready: bool = False
    reason: str = ""
    """Of the pod itself, such as Evicted."""
    message: str = ""
    leaving: bool = False
    """It is being deleted, or gone."""
    disruption: Wait | None = None
    """Its condition DisruptionTarget."""
    unscheduled: Wait | None = None
    """Its condition PodScheduled, while it is false."""
    waiting: Wait | None = None
    """A container that cannot start."""
    ended: Ended | None = None
    """A container that ended, one that failed first."""


@dataclass(frozen=True)
class Placement:
    """A job's trainer as the cluster has it: the Kubernetes Job and its pods, gone ones too."""

    uid: str = ""
    """Of the Job; empty when there is none."""
    nodes: int = 1
    suspended: bool = False
    queue: str = ""
    complete: bool = False
    failed: Wait | None = None
    """The Job's condition Failed."""
    refused: Wait | None = None
    """Why the cluster takes no pod of it, if that is the last that it said."""
    pods: tuple[TrainerPod, ...] = ()


class PodVerdict(Enum):
    """What becomes of a pod."""

    READY = "ready"
    WAIT = "wait"
    TAKEN = "taken"
    """The cluster took it away; it comes back, and nobody is to blame."""
    CRASHED = "crashed"
    """It ended by itself; it comes back, so many times."""
    HOPELESS = "hopeless"
    """It would end the same way every time."""


@dataclass(frozen=True)
class PodFinding:
    """A verdict, and why."""

    verdict: PodVerdict
    why: Wait


# Reasons that a pod itself has when the node or the cluster ended it, on clusters that set no
# DisruptionTarget too.
_TAKEN = frozenset(
    {
        "Evicted",
        "NodeLost",
        "NodeShutdown",
        "NodeAffinity",
        "Preempted",
        "Preempting",
        "Shutdown",
        "Terminated",
        "UnexpectedAdmissionError",
    }
)
_IMAGE = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_CONTAINER = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreStartHookError"}
)


def judge(pod: TrainerPod) -> PodFinding:
    """What a pod's status means for the job."""
    if pod.phase in ("Failed", "Succeeded") or pod.leaving:
        return _judge_end(pod)
    if pod.unscheduled is not None:
        if pod.unscheduled.reason == "SchedulingGated":
            return _wait("TRAINER_QUEUED", f"{pod.name} is held back by a scheduling gate")
        return _wait("TRAINER_UNSCHEDULABLE", pod.unscheduled.message or "no node has room")
    if pod.waiting is not None:
        said = _joined(pod.waiting.reason, pod.waiting.message)
        if pod.waiting.reason == "InvalidImageName":
            return PodFinding(PodVerdict.HOPELESS, Wait("TRAINER_IMAGE_INVALID", said))
        if pod.waiting.reason in _IMAGE:
            return _wait("TRAINER_IMAGE_PULL", said)
        if pod.waiting.reason in _CONTAINER:
            return _wait("TRAINER_CONTAINER_CONFIG", said)
    # Some kubelets tell of readiness before they tell the address.
    if pod.ready and pod.ip:
        return PodFinding(PodVerdict.READY, _NOTHING)
    what = "starts" if pod.phase == "Running" else "is being created"
    return _wait(TRAINER_STARTING, f"{pod.name} {what}")


def _judge_end(pod: TrainerPod) -> PodFinding:
    if pod.disruption is not None:
        said = _joined(pod.disruption.reason, pod.disruption.message)
        return PodFinding(PodVerdict.TAKEN, Wait("TRAINER_EVICTED", said))
    if pod.reason in _TAKEN or pod.reason.startswith("OutOf"):
        return PodFinding(
            PodVerdict.TAKEN, Wait("TRAINER_EVICTED", _joined(pod.reason, pod.message))
        )
    ended = pod.ended
    if ended is not None and ended.reason == "OOMKilled":
        what = f"{pod.name} was killed: its container {ended.container} outgrew its memory limit"
        return PodFinding(PodVerdict.CRASHED, Wait("TRAINER_OUT_OF_MEMORY", what))
    if (
        ended is not None
        and ended.container == TRAINER_CONTAINER
        and ended.exit_code == BAD_SETTINGS
    ):
        said = ended.message or f"{pod.name} ended with exit code {BAD_SETTINGS}"
        return PodFinding(PodVerdict.HOPELESS, Wait("TRAINER_MISCONFIGURED", said))
    if pod.leaving:
        return PodFinding(PodVerdict.TAKEN, Wait("TRAINER_EVICTED", f"{pod.name} was deleted"))
    if ended is None:
        said = _joined(pod.reason or pod.phase, pod.message)
        return PodFinding(PodVerdict.CRASHED, Wait("TRAINER_CRASHED", f"{pod.name}: {said}"))
    what = f"{pod.name}: its container {ended.container} ended with exit code {ended.exit_code}"
    return PodFinding(PodVerdict.CRASHED, Wait("TRAINER_CRASHED", _joined(what, ended.message)))


class TrainerAction(Enum):
    """What is to be done about a trainer."""

    CREATE = "create"
    REPLACE = "replace"
    """The Job has ended and starts no more pods: another one takes its place."""
    OPEN = "open"
    WAIT = "wait"
    FAIL = "fail"


@dataclass(frozen=True)
class Decision:
    """What is to be done, why, and what has newly happened to pods."""

    action: TrainerAction
    why: Wait = _NOTHING
    pod: TrainerPod | None = None
    """The one to open."""
    news: tuple[Wait, ...] = ()


class Watchman:
    """Decides for one job's trainer, look by look, and counts what its pods died of.

    A crash of one of several pods ends the others too (decision 9), so a pod
    that was taken excuses as many crashes as there are other pods.
    """

    def __init__(self, restarts: int) -> None:
        """`restarts` is how often each machine may crash before the trainer is there."""
        self._restarts = restarts
        self._known: set[str] | None = None
        self._job = ""
        self._taken = 0
        self._crashed = 0
        self._last: PodFinding | None = None

    def look(self, now: Placement) -> Decision:
        """What follows from what the cluster says now."""
        news = self._count(now)
        hopeless = next((f for f in map(judge, now.pods) if f.verdict is PodVerdict.HOPELESS), None)
        if not now.uid:
            return Decision(TrainerAction.CREATE, news=news)
        if hopeless is not None:
            return Decision(TrainerAction.FAIL, hopeless.why, news=news)
        if self._last is not None and self._charged(now) > self._restarts * now.nodes:
            why = self._last.why
            often = f"{why.message}; it crashed {self._charged(now)} times in a row"
            return Decision(TrainerAction.FAIL, Wait(why.reason, often), news=news)
        if now.failed is not None:
            return self._job_failed(now.failed, news)
        if now.complete:
            return self._replace(news)
        return self._pods(now, news)

    def settle(self) -> bool:
        """The trainer is there: what comes is another loss.

        Returns:
            Whether this one was the cluster's doing alone.
        """
        uncounted = self._taken > 0 and self._last is None
        self._taken = self._crashed = 0
        self._last = None
        return uncounted

    def _count(self, now: Placement) -> tuple[Wait, ...]:
        """Takes account of pods that have newly ended, and of a Job that is gone."""
        first = self._known is None
        known = self._known = self._known or set()
        news = []
        if self._job and now.uid != self._job:
            self._taken += 1
        self._job = now.uid
        for pod in now.pods:
            finding = judge(pod)
            if finding.verdict not in (PodVerdict.TAKEN, PodVerdict.CRASHED) or pod.uid in known:
                continue
            known.add(pod.uid)
            if first:
                # Of a former run of the job.
                continue
            news.append(finding.why)
            if finding.verdict is PodVerdict.TAKEN:
                self._taken += 1
            else:
                self._crashed += 1
        # Those of a Job that is gone do not come back.
        self._known &= {pod.uid for pod in now.pods}
        charged = self._charged(now)
        crashes = [f for f in map(judge, now.pods) if f.verdict is PodVerdict.CRASHED]
        if not charged:
            self._last = None
        elif crashes:
            self._last = crashes[-1]
        return tuple(news)

    def _charged(self, now: Placement) -> int:
        return max(0, self._crashed - self._taken * (now.nodes - 1))

    def _job_failed(self, failed: Wait, news: tuple[Wait, ...]) -> Decision:
        said = _joined(failed.reason, failed.message)
        if failed.reason == "PodFailurePolicy":
            return Decision(TrainerAction.FAIL, Wait("TRAINER_MISCONFIGURED", said), news=news)
        if failed.reason == "DeadlineExceeded":
            return Decision(TrainerAction.FAIL, Wait("TRAINER_DEADLINE_EXCEEDED", said), news=news)
        return self._replace(news)

    def _replace(self, news: tuple[Wait, ...]) -> Decision:
        # That this Job goes is our doing, and not the cluster's.
        self._job = ""
        return Decision(TrainerAction.REPLACE, news=news)

    def _pods(self, now: Placement, news: tuple[Wait, ...]) -> Decision:
        if now.suspended:
            where = f"in the queue {now.queue!r}" if now.queue else "suspended"
            why = Wait("TRAINER_QUEUED", f"its Job is {where}, until it is admitted")
            return Decision(TrainerAction.WAIT, why, news=news)
        alive = {pod.index: pod for pod in now.pods if is_alive(pod)}
        first = alive.get(0)
        if first is not None and judge(first).verdict is PodVerdict.READY:
            return Decision(TrainerAction.OPEN, pod=first, news=news)
        found = [judge(alive[index]) for index in sorted(alive)]
        held = next((f for f in found if f.why.reason not in ("", TRAINER_STARTING)), None)
        if held is not None:
            return Decision(TrainerAction.WAIT, held.why, news=news)
        if now.refused is not None and len(alive) < now.nodes:
            if "exceeded quota" in now.refused.message:
                why = Wait("TRAINER_OVER_QUOTA", now.refused.message)
                return Decision(TrainerAction.WAIT, why, news=news)
            return Decision(
                TrainerAction.FAIL, Wait("TRAINER_FORBIDDEN", now.refused.message), news=news
            )
        if self._last is not None:
            why = self._last.why
            again = Wait(why.reason, f"{why.message}; it starts again")
            return Decision(TrainerAction.WAIT, again, news=news)
        starting = next((f.why for f in found if f.why.reason), None)
        why = starting or Wait(TRAINER_STARTING, "its pods are being created")
        return Decision(TrainerAction.WAIT, why, news=news)


def is_alive(pod: TrainerPod) -> bool:
    """Whether it runs, or may come to."""
    return not pod.leaving and pod.phase not in ("Failed", "Succeeded")


def _wait(reason: str, message: str) -> PodFinding:
    return PodFinding(PodVerdict.WAIT, Wait(reason, message))


def _joined(what: str, message: str) -> str:
    return f"{what}: {message}" if what and message else what or message
