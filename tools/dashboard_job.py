"""What the dashboard of one job shows: header, learning, stability, pipeline, staleness."""

from __future__ import annotations

from dashboard_panels import J, Panel, Row, gpus, rate

_STEP = f"max(podium_controller_step{{{J}}})"
_TARGET = f"max(podium_controller_step_target{{{J}}})"


def _share(outcome: str) -> str:
    groups = "podium_controller_job_groups_total"
    these = rate(groups, more=f'outcome="{outcome}"', of=J)
    return f"{these} / ({rate(groups, of=J)} > 0)"


HEADER: Row = (
    "Progress",
    (
        Panel(
            "Step",
            "Steps committed: trained, published and served.",
            "none",
            ((_STEP, "step"),),
            stat=True,
        ),
        Panel(
            "Done",
            "Share of its steps.",
            "percentunit",
            ((f"{_STEP} / {_TARGET}", "done"),),
            stat=True,
            most=1,
        ),
        Panel(
            "Time left",
            "Steps that are left, at the pace of the last few.",
            "s",
            (
                (
                    f"({_TARGET} - {_STEP}) * max(podium_controller_step_interval_seconds{{{J}}})",
                    "left",
                ),
            ),
            stat=True,
        ),
        Panel(
            "Since it last came forward",
            "A step, an evaluation or its start, whoever led then.",
            "s",
            (
                (
                    f"time() - max(podium_controller_last_progress_timestamp_seconds{{{J}}})",
                    "since",
                ),
            ),
            stat=True,
            alert="PodiumJobStalled",
        ),
        Panel(
            "Waits for",
            "Seconds that it has waited, and for what; nothing while it goes on.",
            "s",
            (
                (
                    f"time() - podium_controller_waiting_since_timestamp_seconds{{{J}}}",
                    "{{reason}}",
                ),
            ),
            stat=True,
            base="orange",
            empty="nothing",
            alert="PodiumJobWaitingLong",
        ),
        Panel(
            "Trainer pods that ended",
            "Since the job runs here, by what the cluster says of them.",
            "none",
            ((f"sum by (reason) (podium_controller_trainer_ends_total{{{J}}})", "{{reason}}"),),
            stat=True,
            base="green",
            levels=((1, "orange"),),
            alert="PodiumTrainerCrashLoop",
        ),
    ),
)
LEARNING: Row = (
    "Learning",
    (
        Panel(
            "Reward",
            "Mean reward: of each step's training episodes, and of evaluations on held-out "
            "scenarios.",
            "none",
            (
                (f"podium_controller_reward_mean{{{J}}}", "training"),
                (f"podium_controller_evaluation_reward_mean{{{J}}}", "evaluation, {{mode}}"),
            ),
            alert="PodiumRewardCollapse",
        ),
        Panel(
            "Success",
            "Mean success, where the environment tells it.",
            "percentunit",
            (
                (f"podium_controller_success_ratio{{{J}}}", "training"),
                (f"podium_controller_evaluation_success_ratio{{{J}}}", "evaluation, {{mode}}"),
            ),
            most=1,
        ),
        Panel("Loss", "Of the last step.", "none", ((f"podium_trainer_loss{{{J}}}", "loss"),)),
        Panel(
            "Tokens sampled",
            "By this job's policy, a second.",
            "short",
            ((rate("podium_controller_tokens_total", of=J), "tokens a second"),),
        ),
        Panel(
            "Steps",
            "Steps an hour.",
            "none",
            ((f"3600 * {rate('podium_controller_steps_total', of=J)}", "steps an hour"),),
        ),
        Panel(
            "Learning rate",
            "Of the last step.",
            "sci",
            ((f"podium_trainer_learning_rate{{{J}}}", "learning rate"),),
        ),
    ),
)
STABILITY: Row = (
    "Stability",
    (
        Panel(
            "Entropy",
            "Mean entropy of the policy where tokens train, in nats; a fall to 0 is collapse.",
            "none",
            ((f"podium_trainer_policy_entropy_nats{{{J}}}", "nats a token"),),
            alert="PodiumEntropyCollapse",
        ),
        Panel(
            "KL to the base model",
            "In nats a token, where the job asks for it.",
            "none",
            ((f"podium_trainer_kl_reference_nats{{{J}}}", "nats a token"),),
            empty="no data: the job has no kl_coefficient",
            alert="PodiumKLRunaway",
        ),
        Panel(
            "Trainer against sampler",
            "Of the same tokens: their KL (k3) and the mean difference of log-probs, in nats.",
            "none",
            (
                (f"podium_trainer_mismatch_kl_nats{{{J}}}", "KL"),
                (f"podium_trainer_logprob_difference_nats{{{J}}}", "mean difference"),
            ),
            alert="PodiumSamplerMismatch",
        ),
        Panel(
            "Gradient norm",
            "Before clipping.",
            "none",
            ((f"podium_trainer_grad_norm{{{J}}}", "norm"),),
            alert="PodiumNotFinite",
        ),
        Panel(
            "Clipped and off-policy tokens",
            "Shares of a step's tokens: where the clip counts, with a ratio outside 0.9 to 1.1, "
            "taken out by the sequence mask, without a sampler's log-prob.",
            "percentunit",
            (
                (f"podium_trainer_clip_fraction{{{J}}}", "clipped"),
                (f"podium_trainer_importance_ratio_outside_fraction{{{J}}}", "outside 0.9 to 1.1"),
                (f"podium_trainer_masked_fraction{{{J}}}", "masked"),
                (f"podium_trainer_missing_logprob_fraction{{{J}}}", "no log-prob"),
            ),
            most=1,
        ),
        Panel(
            "Importance weights",
            "Their mean, which should be 1, and their effective sample size as a share of the "
            "tokens.",
            "none",
            (
                (f"podium_trainer_importance_ratio_mean{{{J}}}", "mean ratio"),
                (f"podium_trainer_effective_sample_fraction{{{J}}}", "effective share"),
            ),
        ),
        Panel(
            "Groups without variance",
            "Share of the groups whose attempts all had the same reward: they do not train.",
            "percentunit",
            ((_share("zero_variance"), "no variance"),),
            empty="none",
            alert="PodiumGroupsWithoutVariance",
            most=1,
        ),
    ),
)
PIPELINE: Row = (
    "Pipeline",
    (
        Panel(
            "Seconds by phase",
            "Of each second, what the job spent in each phase; phases that overlap add up to more "
            "than one. open is a trainer that loads.",
            "s",
            ((rate("podium_controller_job_phase_seconds_total", "phase", of=J), "{{phase}}"),),
            stacked=True,
            alert="PodiumJobStalled",
        ),
        Panel(
            "Optimizer by phase",
            "Of each second, what its trainer spent in each phase of a step.",
            "s",
            ((rate("podium_trainer_job_phase_seconds_total", "phase", of=J), "{{phase}}"),),
            stacked=True,
        ),
        Panel(
            "Groups by outcome",
            "Groups an hour that trained, or why not.",
            "none",
            (
                (
                    f"3600 * {rate('podium_controller_job_groups_total', 'outcome', of=J)}",
                    "{{outcome}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Since the last step",
            "Since the trainer took one, and since one was published, served and committed.",
            "s",
            (
                (
                    f"time() - max(podium_trainer_last_step_timestamp_seconds{{{J}}})",
                    "trained",
                ),
                (
                    f"time() - max(podium_controller_last_step_timestamp_seconds{{{J}}})",
                    "committed",
                ),
            ),
            alert="PodiumCheckpointOverdue",
        ),
        Panel(
            "Trained and committed",
            "Step that the trainer's weights are at, and the last that is published and served.",
            "none",
            (
                (f"max(podium_trainer_step{{{J}}})", "trained"),
                (_STEP, "committed"),
            ),
            alert="PodiumCheckpointOverdue",
        ),
    ),
)
STALENESS: Row = (
    "Staleness",
    (
        Panel(
            "Staleness",
            "Versions between a group's oldest sampled span and the weights that it trains, the "
            "greatest of the last step.",
            "none",
            ((f"podium_controller_job_staleness_steps{{{J}}}", "versions"),),
        ),
        Panel(
            "Groups at once",
            "Groups that are collected or wait for their turn at the pool, and how many there may "
            "be, which follows the engines' queue with adaptive_concurrency.",
            "none",
            (
                (f"max(podium_controller_job_concurrent_groups{{{J}}})", "groups"),
                (f"max(podium_controller_job_concurrent_groups_limit{{{J}}})", "limit"),
            ),
            empty="none",
        ),
        Panel(
            "Groups thrown away",
            "Share of the groups that were too old when they were to train, and were collected "
            "again.",
            "percentunit",
            ((_share("stale"), "stale"),),
            empty="none",
            alert="PodiumGroupsStale",
            most=1,
        ),
        Panel(
            "Weights by pod",
            "Newest version of this policy that each pod of its pool serves.",
            "none",
            (
                (
                    'max by (pod) (podium_inference_weights_version{namespace="$namespace", '
                    'podium_release="$release", policy="$job"})',
                    "{{pod}}",
                ),
            ),
            alert="PodiumWeightVersionSkew",
        ),
    ),
)
JOB = (HEADER, LEARNING, STABILITY, PIPELINE, STALENESS, gpus(J))
