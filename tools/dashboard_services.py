"""What the dashboard of a release's services shows: their calls, processes, console, trackers."""

from __future__ import annotations

from dashboard_panels import NO_CLUSTER, Panel, R, Row, quantile, rate

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
