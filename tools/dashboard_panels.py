"""What the Grafana dashboards show.

A dashboard is a list of rows, a row a list of panels, and a panel a title, a description, a unit
and its queries, each an expression and what its lines are called.
"""

from __future__ import annotations

from dataclasses import dataclass

# Of one release; Grafana fills the variables in.
R = 'namespace="$namespace", podium_release="$release"'
J = f'{R}, job_id="$job"'


@dataclass(frozen=True)
class Panel:
    """One graph or, with `stat`, one number."""

    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    stat: bool = False
    stacked: bool = False


def _rate(metric: str, by: str = "", more: str = "") -> str:
    selector = R + (f", {more}" if more else "")
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{{{selector}}}[$__rate_interval]))"


def _mean(metric: str, by: str = "", more: str = "") -> str:
    return f"{_rate(metric + '_sum', by, more)} / {_rate(metric + '_count', by, more)}"


def _quantile(q: float, metric: str, by: str = "") -> str:
    return f"histogram_quantile({q}, {_rate(metric + '_bucket', f'le, {by}' if by else 'le')})"


LEARNING = (
    Panel(
        "Reward",
        "Mean reward of the last step.",
        "short",
        ((f"podium_controller_reward_mean{{{J}}}", "reward"),),
    ),
    Panel(
        "Success",
        "Mean success of the last step's episodes.",
        "percentunit",
        ((f"podium_controller_success_ratio{{{J}}}", "success"),),
    ),
    Panel(
        "Loss",
        "Loss of the last step.",
        "short",
        ((f"podium_trainer_loss{{{J}}}", "loss"),),
    ),
)
STABILITY = (
    Panel(
        "Entropy",
        "Mean entropy of the policy where tokens train; a fall to 0 is collapse.",
        "short",
        ((f"podium_trainer_policy_entropy_nats{{{J}}}", "nats"),),
    ),
    Panel(
        "KL",
        "To the base model, where the job asks for it, and between sampler and trainer.",
        "short",
        (
            (f"podium_trainer_kl_reference_nats{{{J}}}", "to the base model"),
            (f"podium_trainer_mismatch_kl_nats{{{J}}}", "sampler and trainer"),
        ),
    ),
    Panel(
        "Gradient norm",
        "Before clipping.",
        "short",
        ((f"podium_trainer_grad_norm{{{J}}}", "norm"),),
    ),
    Panel(
        "Clipped and off-policy tokens",
        "Shares of a step's tokens: where the clip counts, and with a ratio outside 0.9 to 1.1.",
        "percentunit",
        (
            (f"podium_trainer_clip_fraction{{{J}}}", "clipped"),
            (f"podium_trainer_importance_ratio_outside_fraction{{{J}}}", "outside 0.9 to 1.1"),
        ),
    ),
    Panel(
        "Learning rate",
        "Of the last step.",
        "short",
        ((f"podium_trainer_learning_rate{{{J}}}", "learning rate"),),
    ),
)
PIPELINE = (
    Panel(
        "Step time by phase",
        "Mean seconds of each phase of the controller's jobs; open is a trainer that loads.",
        "s",
        (
            (
                _mean("podium_controller_step_duration_seconds", "phase", 'phase!="total"'),
                "{{phase}}",
            ),
        ),
        stacked=True,
    ),
    Panel(
        "Optimizer step by phase",
        "Mean seconds of each phase inside the trainer.",
        "s",
        ((_mean("podium_trainer_step_duration_seconds", "phase"), "{{phase}}"),),
        stacked=True,
    ),
    Panel(
        "Staleness",
        "Versions between a group's oldest sampled span and the weights that it trains.",
        "short",
        (
            (_mean("podium_controller_staleness_steps"), "mean"),
            (_quantile(0.95, "podium_controller_staleness_steps"), "95th percentile"),
        ),
    ),
    Panel(
        "Groups by outcome",
        "Groups a second that trained, or why not.",
        "short",
        ((_rate("podium_controller_groups_total", "outcome"), "{{outcome}}"),),
        stacked=True,
    ),
)
SAMPLING = (
    Panel(
        "Tokens",
        "Tokens a second: sampled by the pools, read as prompts, trained.",
        "short",
        (
            (_rate("podium_inference_tokens_total", "kind"), "{{kind}}"),
            (_rate("podium_trainer_tokens_total", "", 'kind="trained"'), "trained"),
        ),
    ),
    Panel(
        "Engine queue",
        "Requests in vLLM: the sum over engines, and the longest queue of one.",
        "short",
        (
            (f"sum(vllm:num_requests_running{{{R}}})", "running"),
            (f"sum(vllm:num_requests_waiting{{{R}}})", "waiting"),
            (f"max(vllm:num_requests_waiting{{{R}}})", "waiting, worst engine"),
        ),
    ),
    Panel(
        "KV cache",
        "Share of the KV cache in use, by engine, and of prompt tokens found in the prefix cache.",
        "percentunit",
        (
            (f"max by (pod) (vllm:kv_cache_usage_perc{{{R}}})", "used, {{pod}}"),
            (
                f"{_rate('vllm:prefix_cache_hits_total')}"
                f" / {_rate('vllm:prefix_cache_queries_total')}",
                "prefix hits",
            ),
        ),
    ),
    Panel(
        "Time to first token",
        "As vLLM measures it.",
        "s",
        (
            (_quantile(0.5, "vllm:time_to_first_token_seconds"), "median"),
            (_quantile(0.95, "vllm:time_to_first_token_seconds"), "95th percentile"),
        ),
    ),
)
OVERVIEW = (
    (
        "Jobs",
        (
            Panel(
                "Jobs by state",
                "Jobs in each state.",
                "short",
                ((f"max by (state) (podium_controller_jobs{{{R}}})", "{{state}}"),),
            ),
            Panel(
                "Seconds since the last step",
                "Of each running job.",
                "s",
                (
                    (
                        f"time() - max by (job_id) "
                        f"(podium_controller_last_step_timestamp_seconds{{{R}}})",
                        "{{job_id}}",
                    ),
                ),
            ),
            Panel(
                "Reward by job",
                "Mean reward of each job's last step.",
                "short",
                ((f"podium_controller_reward_mean{{{R}}}", "{{job_id}}"),),
            ),
            Panel(
                "Leader",
                "Controllers that run jobs; there should be one.",
                "short",
                ((f"sum(podium_controller_leader{{{R}}})", "leaders"),),
                stat=True,
            ),
        ),
    ),
    (
        "Projects",
        (
            Panel(
                "Jobs by project",
                "Queued and running; projects that the values do not name are `other`.",
                "short",
                (
                    (
                        f"max by (project, state) (podium_controller_project_jobs{{{R}}})",
                        "{{project}}, {{state}}",
                    ),
                ),
            ),
            Panel(
                "GPUs by project",
                "Of the trainers of its running jobs.",
                "short",
                (
                    (
                        f"max by (project) (podium_controller_project_gpus{{{R}}})",
                        "{{project}}",
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Episodes by pool and project",
                "In flight: what projects share.",
                "short",
                (
                    (
                        f"max by (pool, project) (podium_controller_pool_episodes{{{R}}})",
                        "{{pool}}, {{project}}",
                    ),
                ),
            ),
            Panel(
                "Judge tokens by project",
                "Read and written in this calendar month (UTC), which maxJudgeTokens bounds.",
                "short",
                (
                    (
                        f"max by (project) (podium_controller_project_judge_tokens{{{R}}})",
                        "{{project}}",
                    ),
                ),
            ),
            Panel(
                "Groups that wait for a pool",
                "Ready to start, until it is their job's turn.",
                "short",
                (
                    (
                        f"max by (pool) (podium_controller_pool_groups_waiting{{{R}}})",
                        "{{pool}}",
                    ),
                ),
            ),
        ),
    ),
    ("Pipeline", PIPELINE),
    ("Sampling", SAMPLING),
    (
        "Rollout and judge",
        (
            Panel(
                "Episodes",
                "Episodes a second by how they ended.",
                "short",
                ((_rate("podium_rollout_episodes_total", "outcome"), "{{outcome}}"),),
                stacked=True,
            ),
            Panel(
                "Episodes in flight",
                "Running now.",
                "short",
                ((f"sum(podium_rollout_episodes_in_flight{{{R}}})", "episodes"),),
            ),
            Panel(
                "Judged groups",
                "Groups a second by outcome.",
                "short",
                ((_rate("podium_judge_groups_total", "outcome"), "{{outcome}}"),),
                stacked=True,
            ),
            Panel(
                "Time to score a group",
                "95th percentile.",
                "s",
                ((_quantile(0.95, "podium_judge_score_seconds"), "95th percentile"),),
            ),
        ),
    ),
    (
        "Services",
        (
            Panel(
                "Calls",
                "gRPC calls a second by service.",
                "short",
                ((_rate("podium_grpc_server_handled_total", "service"), "{{service}}"),),
            ),
            Panel(
                "Calls that failed",
                "By service and code, without those that clients cancelled.",
                "short",
                (
                    (
                        _rate(
                            "podium_grpc_server_handled_total",
                            "service, code",
                            'code!~"OK|CANCELLED"',
                        ),
                        "{{service}} {{code}}",
                    ),
                ),
            ),
            Panel(
                "Memory",
                "Resident memory by pod.",
                "bytes",
                ((f"process_resident_memory_bytes{{{R}}}", "{{pod}}"),),
            ),
            Panel(
                "Restarts",
                "Starts of each pod's process in the last hour.",
                "short",
                ((f"changes(process_start_time_seconds{{{R}}}[1h])", "{{pod}}"),),
            ),
            Panel(
                "Stored checkpoints",
                "Bytes of all blobs.",
                "bytes",
                ((f"max(podium_registry_storage_bytes{{{R}}})", "bytes"),),
            ),
        ),
    ),
)
JOB = (
    (
        "Progress",
        (
            Panel(
                "Step",
                "Step that the weights are at.",
                "short",
                ((f"max(podium_trainer_step{{{J}}})", "step"),),
                stat=True,
            ),
            Panel(
                "Since the last step",
                "Seconds.",
                "s",
                ((f"time() - max(podium_controller_last_step_timestamp_seconds{{{J}}})", ""),),
                stat=True,
            ),
            Panel(
                "Tokens sampled",
                "By this job, a second.",
                "short",
                (
                    (
                        f"sum(rate(podium_controller_tokens_total{{{J}}}[$__rate_interval]))",
                        "tokens",
                    ),
                ),
            ),
        ),
    ),
    ("Learning", LEARNING),
    ("Stability", STABILITY),
    ("Pipeline (all jobs of the release)", PIPELINE),
    ("Sampling (all jobs of the release)", SAMPLING),
)
