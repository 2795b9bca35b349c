"""What the dashboard of tenants and cost shows."""

from __future__ import annotations

from dashboard_panels import Panel, R, Row, rate


def _over_range(metric: str, by: str) -> str:
    """What a counter grew by in the time that is shown."""
    return f"sum by ({by}) (increase({metric}{{{R}}}[$__range]))"


TENANTS: tuple[Row, ...] = (
    (
        "Who has what",
        (
            Panel(
                "Jobs by project",
                "Queued and running; projects that the values do not name are other.",
                "none",
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
                "none",
                ((f"max by (project) (podium_controller_project_gpus{{{R}}})", "{{project}}"),),
                stacked=True,
            ),
            Panel(
                "Episodes by pool and project",
                "In flight: what projects share.",
                "none",
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
        ),
    ),
    (
        "Who waits",
        (
            Panel(
                "Queued for",
                "Of the job that has waited longest, by project and reason.",
                "s",
                (
                    (
                        "time() - min by (project, reason) "
                        f"(podium_controller_queued_since_timestamp_seconds{{{R}}})",
                        "{{project}}: {{reason}}",
                    ),
                ),
                empty="nobody waits",
                alert="PodiumJobWaitingLong",
            ),
            Panel(
                "Groups that wait for a pool",
                "Ready to start, until it is their job's turn.",
                "none",
                ((f"max by (pool) (podium_controller_pool_groups_waiting{{{R}}})", "{{pool}}"),),
            ),
            Panel(
                "Jobs at trainer pools",
                "Running there, how many each takes, and how many wait until it answers.",
                "none",
                (
                    (f"max by (pool) (podium_controller_trainer_pool_jobs{{{R}}})", "{{pool}}"),
                    (
                        f"max by (pool) (podium_controller_trainer_pool_places{{{R}}})",
                        "{{pool}}, places",
                    ),
                    (
                        f"max by (pool) (podium_controller_trainer_pool_waiting{{{R}}})",
                        "{{pool}}, waiting",
                    ),
                ),
                empty="no data: no trainer pools",
                alert="PodiumTrainerPoolNotStarting",
            ),
            Panel(
                "Jobs that ended",
                "A day, by project and state.",
                "none",
                (
                    (
                        f"86400 * {rate('podium_controller_jobs_ended_total', 'project, state')}",
                        "{{project}}, {{state}}",
                    ),
                ),
                empty="none",
            ),
        ),
    ),
    (
        "What it cost",
        (
            Panel(
                "GPU hours by project",
                "Of the time that is shown: of trainers, and shares of pools.",
                "h",
                (
                    (
                        _over_range("podium_controller_job_gpu_seconds_total", "project, kind")
                        + " / 3600",
                        "{{project}}, {{kind}}",
                    ),
                ),
                stacked=True,
                empty="no data: no GPUs",
            ),
            Panel(
                "Tokens by project",
                "Of the time that is shown: of prompts, sampled, trained on.",
                "short",
                (
                    (
                        _over_range("podium_controller_job_tokens_total", "project, kind"),
                        "{{project}}, {{kind}}",
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Judges' cost by project",
                "Of the time that is shown, by the judges' prices.",
                "currencyUSD",
                (
                    (
                        _over_range("podium_controller_job_judge_cost_usd_total", "project"),
                        "{{project}}",
                    ),
                ),
                stacked=True,
                empty="no data: no job has a judge model with a price",
            ),
            Panel(
                "Budgets of projects",
                "Part that is used; from 1 on the project's jobs pause. Those of a month begin "
                "anew with it (UTC), maxTotal… never.",
                "percentunit",
                (
                    (
                        "max by (project, bound) "
                        f"(podium_controller_project_budget_used_ratio{{{R}}})",
                        "{{project}}, {{bound}}",
                    ),
                ),
                empty="no data: no project has a budget",
            ),
            Panel(
                "Stored trajectories",
                "And how many may be stored, above which the oldest are deleted, down to nine "
                "tenths.",
                "bytes",
                (
                    (f"max(podium_controller_trajectory_store_bytes{{{R}}})", "stored"),
                    (
                        f"max(podium_controller_trajectory_store_limit_bytes{{{R}}}) < +Inf",
                        "limit",
                    ),
                ),
                alert="PodiumTrajectoriesAboveLimit",
            ),
        ),
    ),
)
