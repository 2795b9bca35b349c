"""What the dashboards of a whole release show: overview, and its services."""

from __future__ import annotations

from dashboard_panels import FIRING, NEEDS_KUBELET, NO_CLUSTER, Panel, R, Row, gpus, quantile, rate

_HANDLED = "podium_grpc_server_handled_total"
_USERS = 'service=~"podium[.](jobs|registry)[.].+"'
_FAULTS = 'code=~"INTERNAL|UNKNOWN|UNAVAILABLE"'
_BUDGET = 0.005
_NO_CONSOLE = "no data: no console, or nobody looked"
_NO_TRACKING = "no data: no tracking service"


def _faulty(window: str) -> str:
    """The share of users' calls that failed by the service's own fault; 0 where none did."""

    def calls(more: str) -> str:
        return f"sum by (service) (increase({_HANDLED}{{{R}, {_USERS}{more}}}[{window}]))"

    return f"({calls(', ' + _FAULTS)} or {calls('')} * 0) / ({calls('')} > 0)"


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

SERVICES: tuple[Row, ...] = (
    (
        "Objective: 99.5 % of users' calls in thirty days",
        (
            Panel(
                "Error budget left",
                "Of the time that is shown, by service; calls that failed by INTERNAL, UNKNOWN or "
                "UNAVAILABLE spend it.",
                "percentunit",
                ((f"1 - ({_faulty('$__range')}) / {_BUDGET}", "{{service}}"),),
                stat=True,
                base="red",
                levels=((0.001, "orange"), (0.25, "green")),
                alert="PodiumErrorBudgetBurn",
                most=1,
            ),
            Panel(
                "Burn rate",
                "How many times too fast the budget is spent, of an hour: from 14.4 on it is "
                "critical.",
                "none",
                ((f"({_faulty('1h')}) / {_BUDGET}", "{{service}}"),),
                alert="PodiumErrorBudgetBurn",
            ),
            Panel(
                "Calls of users",
                "A second, of the controller and the registry.",
                "reqps",
                ((rate(_HANDLED, "service, code", _USERS), "{{service}} {{code}}"),),
            ),
        ),
    ),
    (
        "Rate, errors, duration",
        (
            Panel(
                "Calls",
                "gRPC calls a second by method.",
                "reqps",
                ((rate(_HANDLED, "service, method"), "{{service}}/{{method}}"),),
            ),
            Panel(
                "Calls that failed",
                "A second, by method and code, without those that clients cancelled.",
                "reqps",
                (
                    (
                        rate(_HANDLED, "service, method, code", 'code!~"OK|CANCELLED"'),
                        "{{service}}/{{method}} {{code}}",
                    ),
                ),
                empty="none",
                alert="PodiumInternalErrors",
            ),
            Panel(
                "Time of a call",
                "95th percentile by method; watches and streams last as long as there is news.",
                "s",
                (
                    (
                        quantile(0.95, "podium_grpc_server_handling_seconds", "service, method"),
                        "{{service}}/{{method}}",
                    ),
                ),
                exemplars=True,
            ),
            Panel(
                "Calls between services",
                "As who asks sees them, a second, without those that went well.",
                "reqps",
                (
                    (
                        rate("podium_grpc_client_handled_total", "service, code", 'code!="OK"'),
                        "{{service}} {{code}}",
                    ),
                ),
                empty="none",
            ),
        ),
    ),
    (
        "Console and trackers",
        (
            Panel(
                "Requests of browsers",
                "To the console, a second, by status.",
                "reqps",
                ((rate("podium_console_requests_total", "status"), "{{status}}"),),
                empty=_NO_CONSOLE,
            ),
            Panel(
                "Time of a browser's request",
                "Until its answer begins, 95th percentile by route.",
                "s",
                ((quantile(0.95, "podium_console_request_seconds", "route"), "{{route}}"),),
                empty=_NO_CONSOLE,
            ),
            Panel(
                "Open pages",
                "Which the console tells of changes.",
                "none",
                ((f"sum(podium_console_streams{{{R}}})", "pages"),),
                empty=_NO_CONSOLE,
            ),
            Panel(
                "Steps behind",
                "Of the job that is furthest behind: committed, and not told its tracker yet.",
                "none",
                ((f"max by (tracker) (podium_tracking_lag_steps{{{R}}})", "{{tracker}}"),),
                empty=_NO_TRACKING,
                alert="PodiumTrackingBehind",
            ),
            Panel(
                "Steps told",
                "An hour, by tracker.",
                "none",
                (
                    (
                        f"3600 * {rate('podium_tracking_steps_total', 'tracker')}",
                        "{{tracker}}",
                    ),
                ),
                empty="no data: no job names a tracker",
            ),
            Panel(
                "Trackers that failed",
                "An hour, by tracker and reason.",
                "none",
                (
                    (
                        f"3600 * {rate('podium_tracking_failures_total', 'tracker, reason')}",
                        "{{tracker}}: {{reason}}",
                    ),
                ),
                empty="none",
                alert="PodiumTrackingFailing",
            ),
            Panel(
                "Workers of trackers",
                "Processes, each of which tells one tracker of one job.",
                "none",
                ((f"sum by (tracker) (podium_tracking_workers{{{R}}})", "{{tracker}}"),),
                empty=_NO_TRACKING,
            ),
        ),
    ),
    (
        "Processes",
        (
            Panel(
                "Pods",
                "By component: that can be scraped.",
                "none",
                ((f"sum by (podium_component) (up{{{R}}})", "{{podium_component}}"),),
                alert="PodiumReplicasMissing",
            ),
            Panel(
                "CPU",
                "Cores in use by pod.",
                "none",
                ((rate("process_cpu_seconds_total", "pod"), "{{pod}}"),),
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
                "none",
                ((f"changes(process_start_time_seconds{{{R}}}[1h])", "{{pod}}"),),
                alert="PodiumCrashLooping",
            ),
            Panel(
                "Losses",
                "Times an hour that a job lost a service and waited for it.",
                "none",
                (
                    (
                        f"3600 * {rate('podium_controller_recoveries_total', 'service')}",
                        "{{service}}",
                    ),
                ),
                empty="none",
            ),
            Panel(
                "Calls of the API server",
                "A second, by method and resource.",
                "reqps",
                (
                    (
                        rate("podium_controller_cluster_calls_total", "method, resource"),
                        "{{method}} {{resource}}",
                    ),
                ),
                empty=NO_CLUSTER,
            ),
        ),
    ),
)
