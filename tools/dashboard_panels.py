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
# The pods of a release, where another exporter names them.
PODS = 'namespace="$namespace", pod=~"$release.*"'

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


def gpus(of: str) -> Row:
    """What the GPUs of pods do, by the DCGM exporter's metrics; `of` selects the pods."""
    return (
        "GPUs",
        (
            Panel(
                "GPU in use",
                "Share of time in which the GPU did anything. DCGM exporter's.",
                "percent",
                ((f"DCGM_FI_DEV_GPU_UTIL{{{of}}}", "{{pod}} GPU {{gpu}}"),),
                empty=NEEDS_DCGM,
                most=100,
            ),
            Panel(
                "Tensor cores in use",
                "Share of cycles in which the tensor cores worked. DCGM exporter's.",
                "percentunit",
                ((f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{of}}}", "{{pod}} GPU {{gpu}}"),),
                empty=NEEDS_DCGM,
                most=1,
            ),
            Panel(
                "GPU memory",
                "In use. DCGM exporter's.",
                "mbytes",
                ((f"DCGM_FI_DEV_FB_USED{{{of}}}", "{{pod}} GPU {{gpu}}"),),
                empty=NEEDS_DCGM,
            ),
            Panel(
                "GPU power",
                "A GPU that waits for others draws little. DCGM exporter's.",
                "watt",
                ((f"DCGM_FI_DEV_POWER_USAGE{{{of}}}", "{{pod}} GPU {{gpu}}"),),
                empty=NEEDS_DCGM,
            ),
        ),
    )
