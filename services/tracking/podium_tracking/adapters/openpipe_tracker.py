"""OpenPipe's reports of completions, over its HTTP API.

Its own client (openpipe 5.0.0) asks for older releases of openai, anthropic and attrs than
Podium runs with: these are the two calls that it makes, and a test holds them to it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import httpx
from podium.core.actions import Action, actions_of, total_reward
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import trajectory_pb2

from podium_tracking.domain.trackers import Delivered, TrackerError

_DEFAULT_URL = "https://api.openpipe.ai/api/v1"
_TIMEOUT_SECONDS = 30.0


class OpenPipeTracker:
    """Implements `Tracker`."""

    episodes_at: Literal["step", "end", "never"] = "step"

    def __init__(self, key: str, base_url: str) -> None:
        self._http = httpx.Client(
            base_url=(base_url or _DEFAULT_URL).rstrip("/") + "/",
            headers={"Authorization": f"Bearer {key}"},
            timeout=_TIMEOUT_SECONDS,
        )
        self._job = pb.Job()
        self._empty = False

    def open(self, job: pb.Job) -> Delivered:
        """See `Tracker`."""
        self._job = job
        return Delivered(finished=self._empty or self._update("podium_ended", job.id, {}) > 0)

    def has(self, trajectory_id: str) -> bool:
        """Asks for its reports."""
        return self._update("podium_trajectory", trajectory_id, {}) > 0

    def episodes(self, step: int, chunk: Sequence[trajectory_pb2.Trajectory]) -> None:
        """A report for each completion that is not there, and the reward for all of an episode."""
        for each in chunk:
            actions = actions_of(each)
            if not actions:
                continue
            there = self._update("podium_trajectory", each.id, {})
            for at, action in enumerate(actions):
                completion = _completion_id(each.id, at)
                if there and self._update("podium_completion", completion, {}):
                    continue
                self._report(step, each, at, action, completion)
            self._update(
                "podium_trajectory",
                each.id,
                {
                    "reward": f"{total_reward(each):g}",
                    "success": str(each.metrics.get("success", 0) > 0).lower(),
                },
            )

    def step(self, sequence: int, step: pb.Step) -> None:
        """Its episodes say everything."""

    def evaluation(self, sequence: int, evaluation: pb.Evaluation) -> None:
        """No completion of training."""

    def finish(self, job: pb.Job) -> None:
        """Marks the job's reports, by which its end is known."""
        state = pb.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()
        marks = {"podium_ended": job.id, "podium_state": state}
        # A job that said nothing has no report that could carry the mark.
        self._empty = self._update("podium_job", job.id, marks) == 0

    def close(self) -> None:
        """Every call has been answered."""

    def _report(
        self,
        step: int,
        trajectory: trajectory_pb2.Trajectory,
        at: int,
        action: Action,
        completion: str,
    ) -> None:
        sampling = self._job.spec.rollout.sampling
        version = trajectory.histories[0].tokens.spans[:1]
        metadata = {
            "podium_job": self._job.id,
            "podium_trajectory": trajectory.id,
            "podium_completion": completion,
            "step": str(step),
            "action": action.type,
            "turn": str(at),
            "scenario": trajectory.scenario_id,
            "weights_version": str(version[0].weights_version) if version else "",
        }
        request = {
            "model": self._job.spec.base_model,
            "messages": action.prompt,
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
            "metadata": metadata,
        }
        response = {
            "id": completion,
            "object": "chat.completion",
            "created": trajectory.end_time.seconds,
            "model": self._job.spec.base_model,
            "choices": [
                {
                    "index": 0,
                    "message": action.message,
                    "finish_reason": "tool_calls" if action.message.get("tool_calls") else "stop",
                }
            ],
            "usage": {"completion_tokens": action.tokens},
        }
        self._post(
            "report",
            {
                "requestedAt": trajectory.start_time.ToMilliseconds(),
                "receivedAt": trajectory.end_time.ToMilliseconds(),
                "reqPayload": request,
                "respPayload": response,
                "statusCode": 200,
                "tags": {"$sdk": "podium"},
            },
        )

    def _update(self, name: str, value: str, metadata: Mapping[str, str]) -> int:
        """How many reports have it; they get the metadata."""
        filters = [{"field": f"metadata.{name}", "equals": value}]
        found = self._post("logs/update-metadata", {"filters": filters, "metadata": dict(metadata)})
        matched = found.get("matchedLogs")
        if not isinstance(matched, int | float):
            raise TrackerError("OpenPipe's answer has no matchedLogs")
        return int(matched)

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """
        Raises:
            TrackerError: it did not take it.
        """
        answer = self._http.post(path, content=json.dumps(body), headers=_JSON)
        if not answer.is_success:
            raise TrackerError(f"OpenPipe answered {answer.status_code}: {answer.text[:200]}")
        try:
            found = answer.json()
        except ValueError:
            raise TrackerError("OpenPipe's answer is no JSON") from None
        return found if isinstance(found, dict) else {}


_JSON = {"Content-Type": "application/json"}


def make(environment: Mapping[str, str], folder: Path) -> OpenPipeTracker:
    """The tracker, with what its secret says."""
    key, url = environment.get("OPENPIPE_API_KEY", ""), environment.get("OPENPIPE_BASE_URL", "")
    return OpenPipeTracker(key, url)


def _completion_id(trajectory: str, turn: int) -> str:
    """The same after any retry."""
    return "chatcmpl-" + hashlib.sha256(f"{trajectory}\0{turn}".encode()).hexdigest()[:32]
