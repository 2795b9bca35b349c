"""What failed for somebody who had never seen Podium: a test holds each.

The findings of a newcomer who tried it as the documents say, in his order.
"""

from __future__ import annotations

from support.gathered import wrong_of
from support.held import gone

_DOCUMENTS = "integration/repository/test_document_commands.py"
_INSTALLATIONS = "unit/cli/test_finding_installations.py"

HELD = {
    "1. a wrong data directory or address led to another stack": [
        f"{_INSTALLATIONS}::test_a_mistyped_data_directory_hits_no_other_stack",
        f"{_INSTALLATIONS}::test_with_a_controller_named_no_other_service_is_this_machine_s",
        "unit/sdk/test_addresses.py::"
        "test_services_that_were_not_named_are_unknown_and_say_their_variable",
    ],
    "2. commands and examples of the documents failed when they were typed": [
        f"{_DOCUMENTS}::test_each_command_is_run_or_says_why_not",
        f"{_DOCUMENTS}::test_a_command_runs_as_it_is_printed",
        f"{_DOCUMENTS}::test_the_example_in_the_words_of_podium_environments_plays",
        "unit/repository/test_document_options.py::"
        "test_each_line_of_a_block_is_a_command_that_is_known",
        "unit/repository/test_install_lines.py::"
        "test_the_install_lines_give_pip_the_wheel_and_torchs_index",
        "unit/cli/test_stack.py::test_a_model_of_the_hub_is_fetched_by_up_itself",
        "unit/cli/test_policy_commands.py::"
        "test_a_merged_pool_serves_what_is_named_and_then_what_it_served",
    ],
    "2. the SDK looked elsewhere than the CLI, and the synchronous client lacked parts": [
        "unit/sdk/test_addresses.py::test_the_sdk_follows_the_data_directory_of_the_environment",
        "unit/sdk/test_sync_surface.py::test_each_part_has_the_same_methods",
    ],
    "2. the report had three of a hundred held-out scenarios": [
        "unit/report/test_report.py::test_every_scenario_is_on_the_page",
    ],
    "3. that nothing was trained was not told": [
        "unit/controller/test_coach.py::test_a_sick_run_is_named_once_with_the_setting",
    ],
    "4. no licence, metadata, index or reference of the API": [
        "integration/repository/test_wheel.py::test_the_wheel_has_the_licence_that_it_names",
        "integration/repository/test_wheel.py::"
        "test_the_wheel_says_whose_it_is_and_has_the_packages_version",
        "unit/repository/test_pages.py::test_every_page_is_in_the_index_with_what_it_is",
        "unit/repository/test_pages.py::test_the_page_of_the_api_has_every_method_and_no_other",
    ],
    "4. no way to one GPU without Kubernetes": [
        "integration/repository/test_wheel.py::test_gpu_has_the_versions_of_the_lock",
    ],
    "5. a job needed protobuf's modules, and a dict failed in protobuf's words": [
        "unit/core/test_specs.py::test_typed_spec_dict_file_and_message_are_one",
        "unit/sdk/test_runs.py::test_what_is_wrong_is_said_before_anything_is_sent",
    ],
    "5. errors did not name the address, and a notebook had no progress": [
        "unit/sdk/test_failures.py::test_a_service_that_is_away_is_named_with_its_address",
        "unit/sdk/test_runs.py::test_train_shows_a_bar_in_a_notebook",
    ],
    "5b. a killed script kept the next one waiting, and nothing said for whom": [
        "integration/test_controller_clients.py::"
        "test_a_killed_client_frees_its_place_and_whoever_waits_was_told_for_whom",
    ],
    "6. thinking could not be switched off": [
        "integration/inference/test_chat_template_kwargs.py::test_qwen3_is_told_not_to_think",
    ],
    "6. an image became words without a warning": [
        "unit/inference/test_named_policies.py::"
        "test_a_model_of_text_is_not_shown_an_image_and_the_refusal_names_it",
        "unit/sdk/test_in_process.py::test_an_image_is_refused_as_the_engine_refuses_it",
    ],
    "6. the window had no flag, and the error named no setting": [
        "unit/cli/test_stack.py::test_the_context_window_is_told_to_the_engine",
        "unit/inference/test_score_tokens.py::"
        "test_a_sequence_that_cannot_be_read_is_refused_with_what_came",
    ],
    "6. no fine-tuning from a data set": [
        "integration/test_controller_sft.py::test_the_command_trains_and_says_what_is_best",
    ],
    "7. there was no page to look at": [
        "integration/test_console_browser.py::"
        "test_a_curve_grows_as_steps_are_committed_and_ends_with_the_job",
    ],
    "minor: a job that never was could be deleted": ["unit/cli/test_commands.py::test_steering"],
    "minor: names of other trainers led nowhere, and missing steps were called 0": [
        "unit/cli/test_job_files.py::test_names_of_other_trainers_lead_to_ours",
        "unit/cli/test_job_files.py::test_steps_that_are_not_given_are_required",
    ],
    "minor: what is no YAML was told after invented faults": [
        "unit/cli/test_job_files.py::test_what_is_no_yaml_is_told_alone",
    ],
    "minor: an environment's options were refused in pydantic's words": [
        "unit/environments/test_session.py::test_wrong_options_are_told_in_the_words_of_job_files",
    ],
    "minor: an environment that is away had no address, and a URL passed for one": [
        "integration/test_rollout_sessions.py::"
        "test_an_environment_that_is_away_is_named_with_its_address",
        f"{_INSTALLATIONS}::test_an_url_is_no_address_and_says_what_is",
    ],
    "minor: what is not installed was told too late": [
        "unit/cli/test_progress.py::"
        "test_plot_without_its_package_is_said_before_anything_is_created",
        "unit/cli/test_stack.py::test_what_is_not_installed_is_said_at_once",
    ],
    "minor: narrow terminals kept garbage, long lines and ticks of broken steps": [
        "integration/cli/test_processes.py::test_no_redrawn_line_is_wider_than_the_terminal",
        "unit/cli/test_progress.py::test_a_job_s_many_numbers_are_several_lines",
        "unit/cli/test_progress.py::test_steps_are_whole_numbers_on_the_axis",
    ],
    "minor: sessions that ended well were logged as cancelled": [
        "integration/test_rollout_sessions.py::test_a_session_that_ended_well_is_not_cancelled",
    ],
    "minor: what an option names was not looked for in the folder": [
        "unit/cli/test_environment_check.py::test_what_an_option_names_may_lie_in_this_folder",
    ],
    "minor: no --version, and jobs were not completed": [
        "unit/cli/test_commands.py::test_the_version_is_an_option_too",
        "unit/cli/test_completion.py::test_bash_completes_a_job_with_the_script",
    ],
    "minor: what was exported had no name of the hub and was its owner's alone": [
        "unit/cli/test_policy_commands.py::"
        "test_what_is_exported_has_the_modes_of_new_files_and_the_hub_s_name",
    ],
    "minor: tokens are their owner's alone all the same": [
        "unit/cli/test_login.py::test_login_saves_the_installation_and_uses_it",
        "unit/sdk/test_contexts.py::test_a_kept_token_is_its_owner_s_alone",
    ],
    "minor: lines of prose were too wide": [
        "unit/repository/test_pages.py::test_prose_is_at_most_120_characters_wide",
    ],
    "report: axes, tables and what is folded could not be read on a phone": [
        "integration/test_pages_accessible.py::test_a_report_has_no_serious_or_critical_violation",
    ],
}


def test_a_test_holds_each() -> None:
    wrong = wrong_of(HELD.items(), gone)
    assert not wrong, wrong


def test_a_test_that_is_gone_is_seen() -> None:
    there = "unit/repository/test_newcomers_findings.py::test_a_test_that_is_gone_is_seen"
    assert list(gone([there, f"{there}_not", "unit/none.py::test_a"])) == [
        f"{there}_not",
        "unit/none.py::test_a",
    ]
