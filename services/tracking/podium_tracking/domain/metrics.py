"""What the tracking service tells Prometheus; trackers are few, jobs are no label."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

WORKERS = Gauge("podium_tracking_workers", "Processes that tell a tracker of a job.", ["tracker"])
STEPS = Counter("podium_tracking_steps_total", "Steps that a tracker was told.", ["tracker"])
FAILURES = Counter(
    "podium_tracking_failures_total",
    "Ends of a worker other than its own: the tracker refused (failed), hung (stalled), has no "
    "credentials (no_secret) or no package (no_package).",
    ["tracker", "reason"],
)
LAG = Gauge(
    "podium_tracking_lag_steps",
    "Steps that are committed and not yet told, of the job that is furthest behind.",
    ["tracker"],
)
