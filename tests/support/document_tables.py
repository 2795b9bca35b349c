"""Commands and blocks of Python of documents that another test runs, and those that none does."""

from __future__ import annotations

_SPINE = "tests/integration/spine"
_LOGIN = "tests/unit/cli/test_login.py"
_LOGIN_RELEASE = "tests/integration/cli/test_login_release.py"
ELSEWHERE = {
    "python examples/train_openai.py": f"{_SPINE}/test_client_driven.py::"
    "test_an_agent_that_knows_nothing_of_podium_trains_as_it_is",
    "python examples/reading_judge.py &": "tests/unit/judge/test_reading_judge.py::test_an_*",
    "python examples/mcp_rl/stockroom*": "tests/integration/test_example_mcp_rl.py::test_only_*",
    "podium eval email_search -a base -a ID@best -a baseline:scripted": f"{_SPINE}/test_readme.py::"
    "test_chat_and_eval_serve_what_they_name_and_give_it_back",
    "podium eval email_search -a base -a ID@best --judge ruler": "tests/unit/cli/"
    "test_evaluate_judged.py::test_two_policies_are_compared_in_both_orders_and_the_wins_are_stored",
    "podium eval compare *ID@*": "tests/unit/cli/test_stored_evaluations.py::"
    "test_what_a_job_measured_is_compared_with_itself_and_with_others",
    "podium eval * --judge reward.yaml": "tests/unit/cli/test_evaluate_scored.py::test_scorers_*",
    "podium scenarios generate --url http://host:8000/mcp -n 48 --out tasks.jsonl": "tests/unit/"
    "cli/test_scenarios.py::test_tasks_are_written_counted_and_added_to",
    "podium scenarios generate --command *": "tests/integration/test_example_mcp_rl.py::"
    "test_tasks_are_generated_from_the_real_servers_tools",
    'eval "$(podium completion bash)"': "tests/unit/cli/test_completion.py::"
    "test_bash_completes_a_job_with_the_script",
    "podium install": "tests/integration/cli/test_install_cluster.py::"
    "test_a_ready_cluster_is_exit_code_0",
    "podium login work": f"{_LOGIN_RELEASE}::"
    "test_login_to_a_release_needs_neither_address_nor_token",
    "podium login lab *": f"{_LOGIN_RELEASE}::test_login_says_why_a_release_cannot_be_reached",
    "podium login office *": f"{_LOGIN}::test_login_saves_the_installation_and_uses_it",
    "podium checkpoint export * --merged": "tests/integration/test_cli_export.py::"
    "test_merged_export_equals_base_plus_adapter",
    "podium checkpoint export * --gguf": "tests/integration/test_cli_push.py::"
    "test_an_adapter_and_a_gguf_are_pushed_with_a_card",
    "podium checkpoint load *": "tests/integration/test_load_adapter.py::test_a_version_*",
    "podium checkpoint push *": "tests/integration/test_cli_push.py::test_an_adapter_and_a_gguf_*",
    "podium job cancel JOB": "tests/unit/cli/test_commands.py::test_steering",
    "podium trajectory show TRAJECTORY": "tests/unit/cli/test_trajectory.py::"
    "test_an_episode_is_read_turn_by_turn",
    "helm rollback *": "tests/e2e/test_e2e_training_rollback.py::"
    "test_a_rollback_brings_the_first_release_back",
    "helm test *": "tests/e2e/test_e2e_training.py::test_helm_test_passes",
    "helm upgrade *": "tests/e2e/test_e2e_training.py::"
    "test_an_upgrade_in_the_middle_of_a_job_loses_no_step_and_keeps_the_secrets",
    "WANDB_API_KEY=* podium up --tracking": "tests/integration/tracking/test_tracking_service.py::"
    "test_s3_s28_s32_s45_*",
    "podium up --jobs 4": f"{_SPINE}/test_shared_trainer.py::test_two_jobs_*",
    "node server.js --port 50061": "tests/integration/test_environment_node.py::"
    "test_scenarios_are_listed",
    "node dist/submit.js*": "tests/integration/test_typescript.py::"
    "test_a_job_is_submitted_and_followed",
    "podium env serve mymodule:Guess --port 50060": "tests/integration/test_rollout_service.py::"
    "test_*",
    "podium train task.py*": "tests/integration/cli/test_train.py::"
    "test_it_submits_follows_reports_and_leaves_nothing_running",
    "podium sft *": "tests/integration/test_controller_sft.py::test_the_command_*",
    "curl *": "tests/integration/test_curl.py::test_each_command_of_the_page_runs_as_it_is_printed",
    "python3.11 -m pip wheel *": "tests/integration/repository/test_wheel.py::test_*",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve *": "tests/integration/test_load_adapter.py::"
    "test_a_version_is_served_by_somebody_elses_vllm",
    "PODIUM_INFERENCE_CHAT_TEMPLATE=examples/smollm2_tools.jinja podium up": "tests/integration/"
    "inference/test_smollm2_tools.py::test_*",
    "litellm --config *": "tests/integration/test_judge_litellm.py::"
    "test_a_judge_of_another_api_is_asked_through_litellms_proxy",
    "vf/bin/podium env *": "tests/integration/test_verifiers_of_pypi.py::test_*",
    "torchrun *": "tests/integration/test_trainer_ranks.py::test_t12_two_processes_take_the_step_*",
} | dict.fromkeys(
    ("make up", "podium up", "podium up &", "PODIUM_MCP_COMMANDS=python3 podium up *"),
    "tests/integration/test_cli_stack.py::test_status_down_and_where_commands_find_the_stack",
)
"""By the test that runs it, or its like with the placeholders filled in."""

NOT_RUN = {
    "make demo*": "sixteen minutes; it is run as it stands before its numbers are written down",
    "make test": "it is what runs this test",
    "podium up --data-dir build/demo/stack &": "make demo prints it, with the folder it has made",
    "podium chat --data-dir build/demo/stack *": "likewise; the same chat is in " + _SPINE,
    ". *venv/bin/activate": "the shell's own",
    "cd mytask": "the shell's own; the folder is `podium init`'s",
    "pip *": "installs gigabytes",
    "vf/bin/pip *": "likewise; `make adapters` installs the same from its lock",
    "python3.11 -m venv *": "Python's own; the set-up of these tests has done it",
    "make setup": "likewise",
    "make model": "likewise",
    "make test-unit": "it is a part of what runs this test",
    "make docs": "a minute; tests/unit/repository/test_docs_site.py has its parts",
    "pre-commit *": "the reader's to install; tests/unit/repository/test_hooks.py has its hooks",
    ".venv/bin/python -m pytest *": "it is how this test is run",
    "cluster up;*": "needs a program that starts clusters",
    "python -m bench.*": "minutes to hours; its options, in test_bench_commands.py",
    "python3 bench/gpu/run.py *": "likewise; test_bench_gpu.py runs it at tiny shapes",
    "export *": "the shell's own",
    "TORCH_INDEX_URL=*": "run with doubles of pip in tests/unit/repository/test_install_lines.py",
    "PODIUM_INFERENCE_GPU_MEMORY_UTILIZATION=* podium train *": "needs a GPU, and the hub",
    "PODIUM_INFERENCE_REASONING_PARSER=* podium up *": "fetches a model from the hub",
    "npm install *": "fetches packages: `make adapters` does",
    "helm install *": "needs a cluster: make e2e installs the chart",
    "kubectl *": "needs a cluster: make e2e",
    "tail *.sql | grep *": "what a cluster gave: make e2e backs up and restores",
    "tar -tf blobs.tar *": "likewise",
}
"""By the reason."""

PYTHON_ELSEWHERE = {
    "run = podium.train_sft(": "tests/integration/test_controller_sft.py::test_rows_*",
    "await podium.train_sft_from_file(": f"{_SPINE}/test_client_driven.py::"
    "test_a_model_is_shown_rows_from_a_file_and_then_learns_from_its_own_attempts",
    "from datasets import load_dataset": "tests/unit/cli/test_trajectory_datasets.py::"
    "test_the_pages_lines_run",
    "from openai import OpenAI": f"{_SPINE}/test_openai_client.py::"
    "test_chat_and_stream_with_job_at_version",
    "import random": "tests/unit/environments/test_session.py::test_the_readmes_environment_runs",
} | dict.fromkeys(
    ("# A job is t", "# The same ", "# Path, what came", "# All that the command line does"),
    "tests/unit/sdk/test_python_page.py::test_every_block_runs",
)
_PORTS = "tests/integration/training/test_ports.py"
PYTHON_ELSEWHERE |= {
    # Both are the examples' own, which tests/unit/repository/test_pages.py holds.
    "async with AsyncOpenAI(": f"{_PORTS}::test_an_agent_of_openais_plain_client_*",
    "async def rollout(model": f"{_PORTS}::test_an_agent_that_knows_nothing_of_podium_trains",
}
PYTHON_NOT_RUN = {
    "# A sub-agent: it begins": "three endings of a method; tests/unit/rollout has whole ones",
    "from podium.core.time_limits import": "a part of a step; "
    "tests/unit/core/test_time_limits.py has the same calls",
    "from podium.environments.sandbox import Limits, Sandbox": "needs bubblewrap and a program; "
    "tests/integration/test_sandbox.py has the same calls",
    "async with httpx.AsyncClient": "a part of a program; tests/unit/scenarios/test_generate.py "
    "has the whole",
    "groups = await podium.gather_trajectory_groups(\n    groups,": "needs a judge; "
    "tests/unit/training/test_ruler.py has the same calls",
}
