"""What the dashboards of a pool, and of judge and environments show."""

from __future__ import annotations

from dashboard_panels import P, Panel, R, Row, gpus, mean, quantile, quantiles, rate


def _mean_reward() -> str:
    """Of an episode; a histogram of what may be below zero has no sum."""
    name, by = "podium_rollout_environment_reward", "environment"
    above, below = (rate(f"{name}s_total", by, f'sign="{s}"') for s in ("positive", "negative"))
    return f"({above} - {below}) / ({rate(f'{name}_count', by)} > 0)"


_SERVING: Row = (
    "Serving",
    (
        Panel(
            "Pods",
            "That can be scraped.",
            "none",
            ((f"sum(up{{{P}}})", "pods"),),
            stat=True,
            base="red",
            levels=((1, "green"),),
            alert="PodiumReplicasMissing",
        ),
        Panel(
            "Policies",
            "Policy versions that each pod serves.",
            "none",
            ((f"podium_inference_policies{{{P}}}", "{{pod}}"),),
        ),
        Panel(
            "Weights by pod",
            "Newest version of each policy, by pod; pods of one pool should agree.",
            "none",
            ((f"podium_inference_weights_version{{{P}}}", "{{policy}}, {{pod}}"),),
            alert="PodiumWeightVersionSkew",
        ),
        Panel(
            "Time to take a version",
            "From being told of it to serving it, and that requests were held back meanwhile.",
            "s",
            (
                (mean("podium_inference_policy_load_seconds", of=P), "load, mean"),
                (
                    quantile(0.95, "podium_inference_policy_load_seconds", of=P),
                    "load, 95th percentile",
                ),
                (mean("podium_inference_policy_pause_seconds", of=P), "requests held back, mean"),
            ),
            exemplars=True,
        ),
        Panel(
            "Versions that could not be loaded",
            "An hour, by reason.",
            "none",
            (
                (
                    f"3600 * {rate('podium_inference_policy_load_failures_total', 'reason', of=P)}",
                    "{{reason}}",
                ),
            ),
            empty="none",
            alert="PodiumWeightVersionSkew",
        ),
        Panel(
            "Memory",
            "Resident memory of each pod.",
            "bytes",
            ((f"process_resident_memory_bytes{{{P}}}", "{{pod}}"),),
        ),
    ),
)
_ENGINE: Row = (
    "Engine",
    (
        Panel(
            "Tokens",
            "A second, by kind: sampled, read as prompts, found in the cache.",
            "short",
            ((rate("podium_inference_tokens_total", "kind", of=P), "{{kind}}"),),
        ),
        Panel(
            "Engine queue",
            "Requests in vLLM: the sum over engines, and the longest queue of one.",
            "none",
            (
                (f"sum(vllm:num_requests_running{{{P}}})", "running"),
                (f"sum(vllm:num_requests_waiting{{{P}}})", "waiting"),
                (f"max(vllm:num_requests_waiting{{{P}}})", "waiting, worst engine"),
            ),
        ),
        Panel(
            "KV cache",
            "Share of the KV cache in use, by engine, and of prompt tokens found in the prefix "
            "cache.",
            "percentunit",
            (
                (f"max by (pod) (vllm:kv_cache_usage_perc{{{P}}})", "used, {{pod}}"),
                (
                    f"{rate('vllm:prefix_cache_hits_total', of=P)}"
                    f" / ({rate('vllm:prefix_cache_queries_total', of=P)} > 0)",
                    "prefix hits",
                ),
            ),
            most=1,
        ),
        Panel(
            "Preemptions",
            "Requests a second that vLLM took out of the batch because its cache was full.",
            "none",
            ((rate("vllm:num_preemptions_total", of=P), "preemptions"),),
        ),
        Panel(
            "Time to first token",
            "As vLLM measures it.",
            "s",
            quantiles("vllm:time_to_first_token_seconds", of=P),
        ),
        Panel(
            "Time between tokens",
            "As vLLM measures it.",
            "s",
            quantiles("vllm:inter_token_latency_seconds", of=P),
        ),
        Panel(
            "Generations",
            "A second, by how they ended.",
            "none",
            ((rate("podium_inference_generations_total", "outcome", of=P), "{{outcome}}"),),
            stacked=True,
        ),
        Panel(
            "Captured calls",
            "Of clients' own rollouts, a second, and those dropped before they were taken.",
            "none",
            (
                (rate("podium_inference_captured_calls_total", of=P), "captured"),
                (rate("podium_inference_captured_calls_dropped_total", of=P), "dropped"),
                (rate("podium_inference_captures_lost_total", of=P), "rollouts lost"),
            ),
        ),
    ),
)
POOL = (_SERVING, _ENGINE, gpus(P))

_EPISODES: Row = (
    "Environments",
    (
        Panel(
            "Episodes",
            "A second, by how they ended.",
            "none",
            ((rate("podium_rollout_episodes_total", "outcome"), "{{outcome}}"),),
            stacked=True,
            alert="PodiumEpisodesFailing",
        ),
        Panel(
            "Episodes that failed",
            "Share by environment; those that jobs serve themselves are other.",
            "percentunit",
            (
                (
                    rate("podium_rollout_episodes_total", "environment", 'outcome="failed"')
                    + f" / ({rate('podium_rollout_episodes_total', 'environment')} > 0)",
                    "{{environment}}",
                ),
            ),
            empty="none",
            alert="PodiumEpisodesFailing",
            most=1,
        ),
        Panel(
            "In flight",
            "Episodes that run, and that wait for a session or a place of their environment.",
            "none",
            (
                (f"sum(podium_rollout_episodes_in_flight{{{R}}})", "running"),
                (f"sum(podium_rollout_episodes_waiting{{{R}}})", "waiting"),
            ),
        ),
        Panel(
            "Time of an episode",
            "From reset to its end.",
            "s",
            quantiles("podium_rollout_episode_seconds"),
            exemplars=True,
        ),
        Panel(
            "Turns",
            "Mean turns of an episode, by environment.",
            "none",
            ((mean("podium_rollout_turns", "environment"), "{{environment}}"),),
        ),
        Panel(
            "Environment's reward",
            "Mean sum of an episode's rewards, by environment.",
            "none",
            ((_mean_reward(), "{{environment}}"),),
            empty="no data: the judge alone gives rewards",
        ),
        Panel(
            "Histories that had to be split",
            "A second: templates that could not be continued token for token; and turns that had "
            "less room than max_tokens.",
            "none",
            (
                (rate("podium_rollout_history_splits_total"), "splits"),
                (rate("podium_rollout_context_capped_total"), "capped turns"),
            ),
        ),
        Panel(
            "Tool calls that could not be read",
            "A second, by environment.",
            "none",
            ((rate("podium_rollout_malformed_calls_total", "environment"), "{{environment}}"),),
            empty="none",
        ),
    ),
)
_JUDGE: Row = (
    "Judge",
    (
        Panel(
            "Judged groups",
            "A second, by outcome.",
            "none",
            ((rate("podium_judge_groups_total", "outcome"), "{{outcome}}"),),
            stacked=True,
        ),
        Panel(
            "Time to score a group",
            "With all that the judge asks for it.",
            "s",
            quantiles("podium_judge_score_seconds"),
            exemplars=True,
        ),
        Panel(
            "Judge's calls by outcome",
            "HTTP requests to judge models, a second.",
            "none",
            ((rate("podium_judge_model_calls_total", "outcome"), "{{outcome}}"),),
            stacked=True,
            empty="no data: no job has a judge model",
            alert="PodiumJudgeDown",
        ),
        Panel(
            "Answers that gave no score",
            "A second.",
            "none",
            ((rate("podium_judge_parse_failures_total"), "answers"),),
            alert="PodiumJudgeUnreadable",
        ),
        Panel(
            "Tokens and cost",
            "A second, by model; the cost in the unit of the prices.",
            "short",
            (
                (rate("podium_judge_tokens_total", "model, kind"), "{{model}}, {{kind}}"),
                (rate("podium_judge_cost_total", "model"), "cost of {{model}}"),
            ),
            empty="no data: no job has a judge model",
        ),
        Panel(
            "Agreement",
            "Kendall's W of the judges of a group: 1 where all rank alike.",
            "none",
            ((mean("podium_judge_agreement_ratio"), "mean"),),
            empty="no data: no job has a panel of judges",
            most=1,
        ),
        Panel(
            "Score by place",
            "Mean score by the fifth of the prompt that an attempt stood in; an unbiased judge "
            "gives all the same.",
            "none",
            (
                (
                    mean("podium_judge_position_score_ratio", "model, fifth"),
                    "{{model}}, fifth {{fifth}}",
                ),
            ),
            empty="no data: no job has a judge model",
            alert="PodiumJudgePositionBias",
        ),
        Panel(
            "Position bias",
            "The slope of the score over the places, in standard deviations of an unbiased "
            "judge's.",
            "none",
            ((f"podium_judge_position_z{{{R}}}", "{{model}}"),),
            empty="no data: no job has a judge model",
            alert="PodiumJudgePositionBias",
        ),
    ),
)
ENVIRONMENTS = (_EPISODES, _JUDGE)
