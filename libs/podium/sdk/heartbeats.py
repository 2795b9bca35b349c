"""Tells the controller that the clients of jobs live, from a thread of its own.

A thread, because an agent's code may keep the event loop for minutes, and is
no less alive for that; only the end of the process ends it.
"""

from __future__ import annotations

import getpass
import logging
import os
import socket
import threading

import grpc

from podium.jobs.v1 import session_service_pb2 as pb
from podium.jobs.v1 import session_service_pb2_grpc as pb_grpc

logger = logging.getLogger(__name__)

SECONDS = 10.0
"""Of silence, after which the controller takes the client to be gone."""
_PAUSE_SECONDS = 2.5
_CALL_SECONDS = 5.0
# The job is gone or ended, or the controller is older than heartbeats.
_FINAL = frozenset(
    {
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INVALID_ARGUMENT,
    }
)


class Heartbeats:
    """Of the jobs that one client drives. Of any thread."""

    def __init__(self, channel: grpc.Channel, token: str) -> None:
        """Owns the channel; `token` is the bearer token of its calls, empty for none."""
        self._channel = channel
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._jobs: set[str] = set()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="podium-heartbeat", daemon=True)

    def begin(self, job_id: str) -> None:
        """The client drives this job from now on."""
        with self._lock:
            self._jobs.add(job_id)
        if not self._thread.is_alive() and not self._ended.is_set():
            self._thread.start()

    def end(self, job_id: str) -> None:
        """It does so no more."""
        with self._lock:
            self._jobs.discard(job_id)

    def close(self) -> None:
        """Takes leave of all jobs, as far as the controller answers at once. Idempotent."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_CALL_SECONDS)
        for job_id in self._driven():
            self._beat(job_id, 0.0)
        self._channel.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            for job_id in self._driven():
                if not self._beat(job_id, SECONDS):
                    self.end(job_id)
            self._ended.wait(_PAUSE_SECONDS)

    def _driven(self) -> list[str]:
        with self._lock:
            return sorted(self._jobs)

    def _beat(self, job_id: str, seconds: float) -> bool:
        """Whether to go on."""
        stub = pb_grpc.SessionServiceStub(self._channel)
        request = pb.HeartbeatRequest(job_id=job_id, client=_who(), seconds=seconds)
        try:
            stub.Heartbeat(request, timeout=_CALL_SECONDS, metadata=self._metadata)
        except grpc.RpcError as error:
            logger.debug("a heartbeat was not taken", exc_info=True)
            return error.code() not in _FINAL
        except ValueError:
            # The channel was closed meanwhile.
            return False
        return True


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}, process {os.getpid()}"[:128]
