"""What the dashboard of a whole release shows."""

from __future__ import annotations

from dashboard_panels import FIRING, NEEDS_KUBELET, Panel, R, Row, gpus, rate

_JOBS: Row = (
    "Jobs",
    (
        Panel(
            "Leader",
            "Controllers that run jobs; there should be one.",
            "none",
            ((f"sum(podium_controller_leader{{{R}}})", "leaders"),),
            stat=True,
            base="red",
            levels=((1, "green"), (2, "red")),
            alert="PodiumNoLeader",
        ),
        Panel(
            "Alerts",
            "That fire, of this release's rules.",
            "none",
            ((f"count(ALERTS{{{R}, {FIRING}}}) or vector(0)", "alerts"),),
            stat=True,
            base="green",
            levels=((1, "red"),),
        ),
        Panel(
            "Jobs by state",
            "Jobs in each state.",
            "none",
            ((f"max by (state) (podium_controller_jobs{{{R}}})", "{{state}}"),),
        ),
        Panel(
            "Jobs that ended",
            "An hour, by state, and why they failed.",
            "none",
            (
                (
                    f"3600 * {rate('podium_controller_jobs_ended_total', 'state, reason')}",
                    "{{state}} {{reason}}",
                ),
            ),
            empty="none",
            alert="PodiumJobFailed",
        ),
        Panel(
            "Done",
            "Share of each running job's steps.",
            "percentunit",
            (
                (
                    f"max by (job_id) (podium_controller_step{{{R}}})"
                    f" / max by (job_id) (podium_controller_step_target{{{R}}})",
                    "{{job_id}}",
                ),
            ),
            most=1,
        ),
        Panel(
            "Reward by job",
            "Mean reward of each job's last step.",
            "none",
            ((f"podium_controller_reward_mean{{{R}}}", "{{job_id}}"),),
            alert="PodiumRewardCollapse",
        ),
        Panel(
            "Since it last came forward",
            "Of each running job: a step, an evaluation or its start.",
            "s",
            (
                (
                    "time() - max by (job_id) "
                    f"(podium_controller_last_progress_timestamp_seconds{{{R}}})",
                    "{{job_id}}",
                ),
            ),
            alert="PodiumJobStalled",
        ),
        Panel(
            "Waits",
            "Seconds that running jobs have waited, and for what.",
            "s",
            (
                (
                    "time() - max by (job_id, reason) "
                    f"(podium_controller_waiting_since_timestamp_seconds{{{R}}})",
                    "{{job_id}}: {{reason}}",
                ),
            ),
            empty="nothing waits",
            alert="PodiumJobWaitingLong",
        ),
    ),
)
_FLOW: Row = (
    "Sampling and training",
    (
        Panel(
            "Tokens",
            "A second: sampled by the pools, read as prompts, trained.",
            "short",
            (
                (rate("podium_inference_tokens_total", "kind"), "{{kind}}"),
                (rate("podium_trainer_tokens_total", "", 'kind="trained"'), "trained"),
            ),
        ),
        Panel(
            "Seconds by phase",
            "Of each second, what the controller's jobs spent in each phase, all together.",
            "s",
            ((rate("podium_controller_job_phase_seconds_total", "phase"), "{{phase}}"),),
            stacked=True,
        ),
        Panel(
            "Groups by outcome",
            "Groups an hour that trained, or why not.",
            "none",
            ((f"3600 * {rate('podium_controller_groups_total', 'outcome')}", "{{outcome}}"),),
            stacked=True,
        ),
        Panel(
            "Requests in the engines",
            "Of all pools, in vLLM.",
            "none",
            (
                (f"sum(vllm:num_requests_running{{{R}}})", "running"),
                (f"sum(vllm:num_requests_waiting{{{R}}})", "waiting"),
            ),
        ),
    ),
)
_STORES: Row = (
    "Stores",
    (
        Panel(
            "Stored checkpoints",
            "Bytes of all blobs.",
            "bytes",
            ((f"max(podium_registry_storage_bytes{{{R}}})", "bytes"),),
        ),
        Panel(
            "Registry's volume",
            "Share that is free.",
            "percentunit",
            (
                (
                    f"podium_registry_volume_free_bytes{{{R}}}"
                    f" / podium_registry_volume_bytes{{{R}}}",
                    "free",
                ),
            ),
            alert="PodiumRegistryNearlyFull",
            most=1,
        ),
        Panel(
            "Volumes",
            "Share of each claim of the namespace that is free, as the kubelets tell.",
            "percentunit",
            (
                (
                    "min by (persistentvolumeclaim) "
                    '(kubelet_volume_stats_available_bytes{namespace="$namespace"} / '
                    'kubelet_volume_stats_capacity_bytes{namespace="$namespace"})',
                    "{{persistentvolumeclaim}}",
                ),
            ),
            empty=NEEDS_KUBELET,
            alert="PodiumDatabaseNearlyFull",
            most=1,
        ),
        Panel(
            "Blobs",
            "Bytes a second, received and sent; and blobs met damaged.",
            "Bps",
            (
                (rate("podium_registry_blob_bytes_uploaded_total"), "received"),
                (rate("podium_registry_blob_bytes_downloaded_total"), "sent"),
                (rate("podium_registry_damaged_blobs_total"), "damaged"),
            ),
            alert="PodiumDamagedBlobs",
        ),
    ),
)
OVERVIEW = (_JOBS, _FLOW, _STORES, gpus(R))
