"""What vLLM's scheduler says of its queue, after each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from podium.inference.v1 import inference_service_pb2 as pb


class SchedulerLoad:
    """The last that it said; nothing runs or waits before its first step."""

    def __init__(self) -> None:
        self.said = pb.EngineLoad()

    def recorder(self) -> Callable[[Any, int], Any]:
        """What makes one of AsyncLLM's `stat_loggers`, which writes here."""
        from vllm.v1.metrics.loggers import StatLoggerBase

        load = self

        class Recorder(StatLoggerBase):  # type: ignore[misc]
            def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
                load.said.places = vllm_config.scheduler_config.max_num_seqs

            def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
                if scheduler_stats is not None:
                    load.said = pb.EngineLoad(
                        running=scheduler_stats.num_running_reqs,
                        waiting=scheduler_stats.num_waiting_reqs
                        + scheduler_stats.num_skipped_waiting_reqs,
                        places=load.said.places,
                        kv_cache_usage=scheduler_stats.kv_cache_usage,
                    )

            def log_engine_initialized(self) -> None:
                pass

        return Recorder
