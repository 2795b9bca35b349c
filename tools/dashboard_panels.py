"""What a panel of the Grafana dashboards is, and how its queries are written.

A dashboard is a list of rows, a row a list of panels, and a panel a title, a description, a unit
and its queries, each an expression and what its lines are called.
"""

from __future__ import annotations

from dataclasses import dataclass

# Of one release; Grafana fills the variables in.
R = 'namespace="$namespace", podium_release="$release"'
J = f'{R}, job_id="$job"'
P = f'{R}, podium_component="$pool"'
# Of Prometheus' ALERTS: those of the chart's rules.
FIRING = 'alertname=~"Podium.+", alertstate="firing"'

NO_CLUSTER = "no data: not in a cluster"
NEEDS_DCGM = "no data: needs the DCGM exporter"
NEEDS_KUBELET = "no data: needs the kubelets' metrics"


@dataclass(frozen=True)
class Panel:
    """One graph or, with `stat`, one number."""

    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    stat: bool = False
    stacked: bool = False
    empty: str = ""
    """What it says without data, where a healthy job need not give it any; empty where it must."""
    alert: str = ""
    """The alert whose page says what to do when it looks bad."""
    exemplars: bool = False
    """Whether traces are shown as dots, where Prometheus has them: of a histogram's buckets, where
    its `observe` is given one, and of nothing else."""
    most: float | None = None
    """The highest value there can be."""
    base: str = ""
    """A number's colour; without one it has that of text."""
    levels: tuple[tuple[float, str], ...] = ()
    """From which values on it has others, ascending."""


Row = tuple[str, tuple[Panel, ...]]


def rate(metric: str, by: str = "", more: str = "", of: str = R) -> str:
    """Of a counter, a second, summed up."""
    selector = of + (f", {more}" if more else "")
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{{{selector}}}[$__rate_interval]))"


def mean(metric: str, by: str = "", more: str = "", of: str = R) -> str:
    """Of what a histogram observed; nothing, and not NaN, while it observed nothing."""
    return f"{rate(metric + '_sum', by, more, of)} / ({rate(metric + '_count', by, more, of)} > 0)"


def quantile(q: float, metric: str, by: str = "", of: str = R) -> str:
    """Of what a histogram observed."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, {rate(metric + '_bucket', labels, '', of)}) >= 0"


def quantiles(metric: str, of: str = R) -> tuple[tuple[str, str], ...]:
    """Its median and what one in twenty exceeds."""
    return (
        (quantile(0.5, metric, of=of), "median"),
        (quantile(0.95, metric, of=of), "95th percentile"),
    )


def _foreign(metric: str) -> str:
    """What another exporter tells of pods of the namespace.

    Where its own labels are not honoured (`honorLabels`), `namespace` and `pod` are the exporter's,
    and Prometheus keeps those of whom it tells as `exported_namespace` and `exported_pod`.
    """
    theirs = f'{metric}{{exported_namespace="$namespace"}}'
    for label in ("namespace", "pod"):
        theirs = f'label_replace({theirs}, "{label}", "$1", "exported_{label}", "(.+)")'
    return f'({metric}{{namespace="$namespace", exported_pod=""}} or {theirs})'


def _of_pods(metric: str, of: str) -> str:
    """What another exporter tells of the pods that `of` selects among those that are scraped."""
    return f"{_foreign(metric)} and on (namespace, pod) up{{{of}}}"


def _of_trainer(metric: str) -> str:
    """What another exporter tells of all pods of the trainer that has the job.

    One of them tells of the job. The names of a Kubernetes Job's pods end with an index and five
    characters, that of a trainer pool's one is its own.
    """

    def trainer(series: str) -> str:
        names = '"trainer", "$1", "pod", "(.+?)(-[0-9]+-[a-z0-9]{5})?"'
        return f"label_replace({series}, {names})"

    theirs = trainer(_foreign(metric))
    return f"{theirs} and on (namespace, trainer) {trainer(f'podium_trainer_step{{{J}}}')}"


def gpus(of: str) -> Row:
    """What the GPUs of pods do, by the DCGM exporter's metrics: those that `of` selects."""

    def gpu(metric: str) -> tuple[tuple[str, str], ...]:
        query = _of_trainer(metric) if of == J else _of_pods(metric, of)
        return ((query, "{{pod}} GPU {{gpu}}"),)

    return (
        "GPUs",
        (
            Panel(
                "GPU in use",
                "Share of time in which the GPU did anything. DCGM exporter's.",
                "percent",
                gpu("DCGM_FI_DEV_GPU_UTIL"),
                empty=NEEDS_DCGM,
                most=100,
            ),
            Panel(
                "Tensor cores in use",
                "Share of cycles in which the tensor cores worked. DCGM exporter's.",
                "percentunit",
                gpu("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
                empty=NEEDS_DCGM,
                most=1,
            ),
            Panel(
                "GPU memory",
                "In use. DCGM exporter's.",
                "mbytes",
                gpu("DCGM_FI_DEV_FB_USED"),
                empty=NEEDS_DCGM,
            ),
            Panel(
                "GPU power",
                "A GPU that waits for others draws little. DCGM exporter's.",
                "watt",
                gpu("DCGM_FI_DEV_POWER_USAGE"),
                empty=NEEDS_DCGM,
            ),
        ),
    )
