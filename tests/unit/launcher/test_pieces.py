"""The launcher's parts that need no process."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from podium.core.errors import AlreadyExistsError, InvalidArgumentError
from podium.kit.rpc.pools import parse_trainer_pools
from podium.local.launcher import LauncherConfig, gpus, logs, upfile, variables
from podium.local.launcher.config import RestartPolicy
from podium.local.launcher.events import Event, EventKind, describe_exit
from podium.local.launcher.guardian import Guardian
from podium.local.launcher.layout import EXTRAS, READINESS, SERVICES, choose_ports, service_names
from podium.local.launcher.supervisor import ServicePlan, Supervisor


def test_default_ports_are_the_documented_ones() -> None:
    ports = choose_ports(50051)
    assert [ports[name].grpc for name in SERVICES] == list(range(50051, 50057))
    assert ports["controller"].health == 50061
    assert ports["trainer"].metrics == 50076
    assert ports["inference"].http == 50083
    assert vars(ports["console"]) == {"grpc": 50058, "health": 50068, "metrics": 50078, "http": 0}
    assert {ports[name].http for name in SERVICES if name != "inference"} == {0}


def testfree_ports_are_all_different_and_below_the_ephemeral_range() -> None:
    every = [port for ports in choose_ports(0).values() for port in vars(ports).values() if port]
    assert len(every) == len(set(every)) == 25
    assert all(20000 <= port < 32768 for port in every)


@pytest.mark.parametrize("base", [-1, 80, 65530, 70000])
def test_impossible_port_base(base: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"got {base}; allowed"):
        choose_ports(base)


def test_choice_of_services() -> None:
    assert service_names([]) == SERVICES
    assert service_names(["judge", "controller"]) == ("controller", "judge")
    with pytest.raises(InvalidArgumentError, match="'jugde'"):
        service_names(["jugde"])
    assert service_names(["tracking", "judge"]) == ("judge", "tracking")
    assert set(READINESS) == {*SERVICES, *EXTRAS}


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (" https://x/{trace_id}", "https://x/{trace_id}"),
        ("javascript:alert('{trace_id}')", ""),
        ("https://x", ""),
    ],
)
def test_the_console_links_traces_as_the_cli_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str, told: str
) -> None:
    monkeypatch.delenv("PODIUM_CONSOLE_TRACE_URL", raising=False)
    monkeypatch.setenv("PODIUM_TRACE_URL", template)
    of = functools.partial(variables.of_service, "console", LauncherConfig(tmp_path))
    assert of(choose_ports(50051), tmp_path)["PODIUM_CONSOLE_TRACE_URL"] == told
    monkeypatch.setenv("PODIUM_CONSOLE_TRACE_URL", "https://its-own/{trace_id}")
    assert of(choose_ports(50051), tmp_path)["PODIUM_CONSOLE_TRACE_URL"].startswith("https://its-")


def test_every_variable_is_a_setting_of_its_service(tmp_path: Path) -> None:
    """A name that no settings class has would be ignored without a word."""
    from importlib import import_module

    config = LauncherConfig(tmp_path, model="m", dtype="float32", weight_mode="merged", auth=True)
    ports = choose_ports(50051)
    for name in (*SERVICES, *EXTRAS):
        settings = import_module(f"podium_{name}.settings").Settings
        prefix = f"PODIUM_{name.upper()}_"
        made = variables.of_service(name, config, ports, tmp_path)
        fields = {key.removeprefix(prefix).lower() for key in made if key.startswith(prefix)}
        assert fields - set(settings.model_fields) == set(), name


def test_with_auth_the_openai_api_asks_for_a_key_and_the_judge_has_one(tmp_path: Path) -> None:
    ports = choose_ports(0)
    config = LauncherConfig(tmp_path, auth=True)
    pool = variables.of_service("inference", config, ports, tmp_path)
    assert pool["PODIUM_INFERENCE_AUTH_TOKENS_FILE"] == str(tmp_path / "token")
    assert pool["PODIUM_INFERENCE_API_KEYS_FILE"] == str(tmp_path / "api-key")
    judge = variables.of_service("judge", config, ports, tmp_path)
    assert judge["PODIUM_JUDGE_KEY_FILE"] == str(tmp_path / "token")
    others = {"PODIUM_JUDGE_BASE_URL": "https://judge.example.com/v1"}
    config = LauncherConfig(tmp_path, auth=True, environment=others)
    judge = variables.of_service("judge", config, ports, tmp_path)
    assert "PODIUM_JUDGE_KEY_FILE" not in judge


def test_peers_are_found_where_they_listen(tmp_path: Path) -> None:
    ports = choose_ports(0)
    made = variables.of_service("controller", LauncherConfig(tmp_path), ports, tmp_path)
    for peer in ("registry", "inference", "rollout", "judge", "trainer"):
        address = made[f"PODIUM_CONTROLLER_{peer.upper()}_ADDRESS"]
        assert address == f"127.0.0.1:{ports[peer].grpc}"


def test_the_controller_knows_whether_the_stack_has_a_tracking_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*services: str) -> str:
        config = LauncherConfig(tmp_path, services=services)
        made = variables.of_service("controller", config, choose_ports(0), tmp_path)
        return made["PODIUM_CONTROLLER_TRACKING"]

    monkeypatch.delenv("PODIUM_CONTROLLER_TRACKING", raising=False)
    assert (told(), told(*SERVICES, "tracking")) == ("false", "true")
    # Somebody runs their own beside the stack.
    monkeypatch.setenv("PODIUM_CONTROLLER_TRACKING", "true")
    assert told() == "true"


@pytest.mark.parametrize(
    ("torch", "devices", "visible", "expected"),
    [
        ("2.9.1", ["nvidia0", "nvidia1", "nvidiactl"], None, 1),
        ("2.9.1+cu128", ["nvidia3"], "3", 1),
        ("2.9.1", ["nvidiactl", "nvidia-uvm"], None, 0),
        ("2.9.1", ["nvidia0"], "", 0),
        ("2.9.1", ["nvidia0"], "-1", 0),
        ("2.9.1+cpu", ["nvidia0"], None, 0),
    ],
)
def test_the_trainer_s_gpu_counts_where_it_computes_on_one(
    torch: str,
    devices: list[str],
    visible: str | None,
    expected: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpus.metadata, "version", {"torch": torch}.__getitem__)
    for name in devices:
        (tmp_path / name).touch()
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpus.trainer_gpus(environment, tmp_path) == expected


def test_several_jobs_share_the_trainer_and_a_pool_of_adapters(tmp_path: Path) -> None:
    ports = choose_ports(0)
    of = functools.partial(variables.of_service, ports=ports, data_dir=tmp_path)
    shared = LauncherConfig(tmp_path, jobs=3, environment={"CUDA_VISIBLE_DEVICES": ""})
    controller = of("controller", config=shared)
    assert controller["PODIUM_CONTROLLER_MAX_ACTIVE_JOBS"] == "3"
    assert controller["PODIUM_CONTROLLER_TRAINER_ADDRESS"] == ""
    (pool,) = parse_trainer_pools(controller["PODIUM_CONTROLLER_TRAINER_POOLS"]).values()
    assert (pool.address, pool.max_jobs) == (f"127.0.0.1:{ports['trainer'].grpc}", 3)
    assert of("trainer", config=shared)["PODIUM_TRAINER_MAX_JOBS"] == "3"
    assert of("inference", config=shared)["PODIUM_INFERENCE_WEIGHT_MODE"] == "adapter"


def test_one_job_at_a_time_has_the_trainer_to_itself(tmp_path: Path) -> None:
    ports = choose_ports(0)
    of = functools.partial(variables.of_service, ports=ports, data_dir=tmp_path)
    controller = of("controller", config=LauncherConfig(tmp_path))
    assert controller["PODIUM_CONTROLLER_TRAINER_ADDRESS"] == f"127.0.0.1:{ports['trainer'].grpc}"
    assert not [name for name in controller if "TRAINER_POOLS" in name or "MAX_ACTIVE" in name]
    assert "PODIUM_TRAINER_MAX_JOBS" not in of("trainer", config=LauncherConfig(tmp_path))
    assert "PODIUM_INFERENCE_WEIGHT_MODE" not in of("inference", config=LauncherConfig(tmp_path))


def test_the_caller_s_environment_wins(tmp_path: Path) -> None:
    config = LauncherConfig(tmp_path, environment={"PODIUM_JUDGE_LOG_FORMAT": "text"})
    made = variables.of_service("judge", config, choose_ports(0), tmp_path)
    assert made["PODIUM_JUDGE_LOG_FORMAT"] == "text"


def test_another_default_judge_is_left_as_it_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = choose_ports(0)
    name = "PODIUM_JUDGE_BASE_URL"
    monkeypatch.delenv(name, raising=False)
    made = variables.of_service("judge", LauncherConfig(tmp_path), ports, tmp_path)
    assert made[name] == variables.openai_base_url(ports)
    monkeypatch.setenv(name, "http://127.0.0.1:11434/v1")
    made = variables.of_service("judge", LauncherConfig(tmp_path), ports, tmp_path)
    assert made[name] == "http://127.0.0.1:11434/v1"


def test_jobs_may_read_scenarios_where_the_services_were_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = choose_ports(0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PODIUM_SCENARIOS_DIR", raising=False)
    made = variables.of_service("rollout", LauncherConfig(tmp_path), ports, tmp_path)
    assert made["PODIUM_SCENARIOS_DIR"] == str(tmp_path)
    # No program is started because a job says so.
    assert "PODIUM_MCP_COMMANDS" not in made
    assert "PODIUM_SCENARIOS_DIR" not in variables.of_service(
        "judge", LauncherConfig(tmp_path), ports, tmp_path
    )
    monkeypatch.setenv("PODIUM_SCENARIOS_DIR", "elsewhere")
    made = variables.of_service("rollout", LauncherConfig(tmp_path), ports, tmp_path)
    assert made["PODIUM_SCENARIOS_DIR"] == "elsewhere"


def test_logs_are_rotated_by_run(tmp_path: Path) -> None:
    path = logs.log_path(tmp_path, "judge")
    for run in range(8):
        logs.rotate(path)
        path.write_text(f"run {run}\n")
    assert path.read_text() == "run 7\n"
    assert path.with_name("judge.log.1").read_text() == "run 6\n"
    assert path.with_name("judge.log.5").read_text() == "run 2\n"
    assert not path.with_name("judge.log.6").exists()


def test_tail_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    record = {
        "time": "2026-01-02T03:04:05+00:00",
        "level": "ERROR",
        "logger": "podium_judge",
        "message": "lost",
        "service": "judge",
        "peer": "inference",
    }
    path.write_text("plain\n" * 30 + json.dumps(record) + "\n{broken\n")
    assert logs.tail(path, 3)[0] == "plain"
    assert logs.tail(path, 2)[0].endswith("ERROR podium_judge: lost peer=inference")
    assert logs.tail(path, 1) == ["{broken"]
    assert len(logs.tail(path, 20)) == 20
    assert logs.tail(tmp_path / "none", 20) == []


@pytest.mark.parametrize(
    ("line", "about"),
    [
        ('{"job": "mail-1"}', True),
        ("group mail-1/s3/g0 done", True),
        ("mail-1@4 loaded", True),
        ("mail-12 began", False),
        ("old-mail-1 began", False),
        ("xmail-1 then mail-1", True),
        ("", False),
    ],
)
def test_a_job_s_lines_name_it_as_a_whole_word(line: str, about: bool) -> None:
    assert logs.mentions(line, "mail-1") is about


def test_claim_is_exclusive_until_released(tmp_path: Path) -> None:
    first = upfile.Claim(tmp_path)
    with pytest.raises(AlreadyExistsError, match="already runs"):
        upfile.Claim(tmp_path)
    first.release()
    first.release()
    upfile.Claim(tmp_path).release()


def test_damaged_up_json_is_nothing(tmp_path: Path) -> None:
    claim = upfile.Claim(tmp_path)
    for text in ("", "{", "[]", '{"services": 3}', '{"services": {"a": {"b": 1}}}'):
        upfile.path(tmp_path).write_text(text)
        assert upfile.read(tmp_path) is None
    claim.release()


def test_exits_are_told_in_words() -> None:
    assert describe_exit(3) == "exit code 3"
    assert describe_exit(-9) == "SIGKILL"
    assert describe_exit(-99) == "signal 99"


@pytest.fixture
def guardian() -> Guardian:
    return Guardian()


def supervisor(policy: RestartPolicy, guardian: Guardian, events: list[Event]) -> Supervisor:
    plan = ServicePlan("judge", "m", {}, "127.0.0.1:9", Path("none"))
    return Supervisor(plan, policy, guardian, events.append)


def test_back_off_doubles_and_ends(guardian: Guardian) -> None:
    events: list[Event] = []
    kept = supervisor(RestartPolicy(max_restarts=3), guardian, events)
    delays = [kept._next_delay(-9, served=True) for _ in range(4)]
    assert delays == [0.5, 1.0, 2.0, None]
    assert events[-1].kind is EventKind.GAVE_UP
    guardian.close()


def test_deaths_long_ago_do_not_count(guardian: Guardian) -> None:
    kept = supervisor(RestartPolicy(max_restarts=1, window_seconds=0.0), guardian, [])
    assert [kept._next_delay(-9, served=True) for _ in range(5)] == [0.5] * 5
    guardian.close()


def test_a_service_that_never_serves_is_given_up_however_slowly_it_dies(
    guardian: Guardian,
) -> None:
    kept = supervisor(RestartPolicy(max_restarts=2, window_seconds=0.0), guardian, [])
    assert [kept._next_delay(-9, served=False) for _ in range(3)] == [0.5, 0.5, None]
    guardian.close()


def test_a_refusal_at_the_first_start_is_final(guardian: Guardian) -> None:
    kept = supervisor(RestartPolicy(), guardian, [])
    assert kept._next_delay(2, served=False) is None
    guardian.close()


def test_the_console_has_no_token_of_its_own(tmp_path: Path) -> None:
    config = LauncherConfig(tmp_path, auth=True, services=("console",))
    made = variables.of_service("console", config, choose_ports(50051), tmp_path)
    assert [name for name in made if name.startswith("PODIUM_CONSOLE") and "TOKEN" in name] == []
