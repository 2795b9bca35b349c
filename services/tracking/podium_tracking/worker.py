"""`python -m podium_tracking.worker JOB TRACKER PIPE`: one process, one tracker of one job.

The trackers' clients keep credentials in variables, start processes and threads, and may hang:
in a process of its own each can be killed, and none holds another's key. What happens is told
in lines of JSON on the descriptor PIPE.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from importlib import import_module
from pathlib import Path

from podium.core.errors import NotFoundError, PodiumError
from podium.kit.rpc import load_settings
from podium.kit.telemetry import setup_logging
from podium.sdk import Addresses, AsyncClient

from podium_tracking.delivery import Delivery
from podium_tracking.domain.trackers import Tracker
from podium_tracking.settings import Settings

logger = logging.getLogger(__name__)

OK, FAILED, GONE, NO_PACKAGE = 0, 1, 3, 4
"""Exit statuses; with GONE or NO_PACKAGE there is nothing to try again."""

_PACKAGES = {"wandb": "wandb", "langfuse": "langfuse", "mlflow": "mlflow-skinny"}


def tracker_of(name: str, settings: Settings) -> Tracker:
    """The tracker's adapter, whose client is imported here and nowhere else.

    Raises:
        ImportError: its package is not installed.
    """
    environment = dict(os.environ)
    adapter = import_module(f"podium_tracking.adapters.{name}_tracker")
    found: Tracker = adapter.make(environment, Path(settings.data_dir).resolve() / name)
    return found


def main() -> None:
    """Runs until the tracker knows the job's end, or there is nothing new."""
    job_id, name, pipe = sys.argv[1:]
    settings = load_settings(Settings)
    setup_logging("tracking", settings.log_level, settings.log_format)
    try:
        tracker = tracker_of(name, settings)
    except ImportError as error:
        package = _PACKAGES.get(name, name)
        logger.error(
            "%s is not installed; install podium[tracking], or %s alone",
            error.name or package,
            package,
            extra={"job_id": job_id, "tracker": name},
        )
        os._exit(NO_PACKAGE)
    code = asyncio.run(_run(job_id, name, tracker, settings, int(pipe)))
    # A client's threads may wait for their server for ever.
    sys.stderr.flush()
    os._exit(code)


async def _run(job_id: str, name: str, tracker: Tracker, settings: Settings, pipe: int) -> int:
    def tell(what: str, step: int) -> None:
        os.write(pipe, json.dumps({"what": what, "step": step}).encode() + b"\n")

    addresses = Addresses(
        controller=settings.controller_address, token=settings.peer_token(), tls=settings.tls()
    )
    context = {"job_id": job_id, "tracker": name}
    try:
        async with AsyncClient(addresses) as client:
            stop = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
            delivery = Delivery(client.jobs, tracker, settings.idle_seconds, tell, stop)
            await delivery.run(job_id)
    except NotFoundError:
        logger.info("the job is there no more", extra=context)
        return GONE
    except PodiumError as error:
        logger.warning("the controller does not answer", extra=context | {"error": error.message})
        return FAILED
    except Exception as error:
        # Whatever a client raises: some say the key in their text.
        text = _without_secrets(f"{type(error).__name__}: {error}")
        logger.warning("%s did not take it: %s", name, text, extra=context)
        return FAILED
    return OK


def _without_secrets(text: str) -> str:
    for name, value in os.environ.items():
        if name.endswith(("_KEY", "_TOKEN", "_PASSWORD")) and len(value) >= 8:
            text = text.replace(value, f"<{name}>")
    return text[:500]


if __name__ == "__main__":
    main()
