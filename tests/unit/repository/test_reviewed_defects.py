"""Defects that a review of rollouts, judging, evaluation and capture found: a test holds each.

The review's letters, what was wrong, and the tests that failed before it was mended.
"""

from __future__ import annotations

from support.gathered import wrong_of
from support.held import gone

HELD = {
    "a. half a character, in words, calls or names, was INTERNAL, and INTERNAL ended the job": [
        "integration/test_controller_judging.py::test_half_a_character_of_a_judge_ends_nothing",
        "integration/test_controller_judging.py::"
        "test_a_defect_that_shows_on_one_group_costs_that_group",
        "integration/test_wild_text.py::"
        "test_no_group_of_wild_attempts_is_internal_from_rollout_to_judge",
        "integration/test_wild_text.py::"
        "test_every_captured_call_is_handed_over_with_its_tokens_as_they_were",
        "integration/test_fuzz.py::test_nothing_that_is_said_ends_in_internal_or_fails_a_job",
        "unit/judge/test_verdict_reasoning.py::"
        "test_what_an_api_says_of_tokens_is_bounded_and_else_estimated",
    ],
    "b. the policy judged itself, and a 404 or 403 of the judge failed the job": [
        "integration/test_judge_choice.py::test_no_policy_ever_judges_itself",
        "integration/test_judge_choice.py::"
        "test_beside_adapters_the_frozen_base_judges_and_is_looked_up_again_when_it_is_gone",
        "integration/test_judge_choice.py::test_a_judge_without_credit_leave_or_model_is_away",
        "integration/test_controller_judging.py::"
        "test_a_job_whose_policy_would_judge_itself_is_refused",
    ],
    "c. submissions that hang dodged their low reward": [
        "integration/test_rollout_sandbox.py::"
        "test_those_that_hang_are_graded_however_many_are_queued",
        "integration/test_rollout_sandbox.py::test_whatever_a_submission_causes_is_a_graded_zero",
    ],
    "d. a turn's render grew with the conversation": [
        "integration/inference/test_recent_renders.py::"
        "test_a_turn_renders_as_many_messages_after_400_turns_as_after_ten",
    ],
    "e. nothing could be told to the chat template, and thoughts were kept that it drops": [
        "integration/inference/test_chat_template_kwargs.py::test_qwen3_is_told_not_to_think",
        "integration/inference/test_chat_template_kwargs.py::test_a_template_of_the_operators_own",
        "integration/inference/test_reasoning_templates.py::"
        "test_qwen3_drops_them_when_somebody_asks_again_and_a_new_history_begins",
        "integration/inference/test_reasoning_templates.py::test_trls_template_for_training_keeps_them",
    ],
    "f. trimming fell off a cliff": [
        "unit/judge/test_trimming.py::test_a_prompt_that_must_be_cut_uses_its_room",
        "integration/test_judge_choice.py::test_a_little_too_much_costs_the_judge_a_little",
    ],
    "g. intervals were too narrow, a busy API counted as failures, no judge was asked, and nothing"
    " was stored or gone on with": [
        "unit/evaluation/test_intervals.py::test_ninety_five_in_a_hundred_intervals_hold_the_truth",
        "unit/evaluation/test_intervals.py::test_a_difference_is_held_as_often",
        "unit/evaluation/test_attempts.py::test_a_comparison_pairs_scenarios",
        "unit/evaluation/test_retries.py::test_a_third_of_requests_refused_costs_no_attempt",
        "unit/controller/test_judged_evaluations.py::"
        "test_ruler_makes_a_win_rate_against_the_first_version_and_no_reward_of_its_own",
        "unit/controller/test_judged_evaluations.py::"
        "test_scorers_of_attempts_alone_make_the_reward_and_leave_out_who_has_none",
        "unit/controller/test_lost_environments.py::"
        "test_a_version_is_measured_where_there_are_environments_and_is_not_the_best",
        "unit/controller/test_stored_evaluations.py::"
        "test_the_numbers_are_the_servers_and_their_intervals_count_scenarios",
        "unit/cli/test_evaluate_resumed.py::"
        "test_a_policy_goes_on_with_its_version_and_is_stored_once",
    ],
    "h. of several choices the wrong one trained": [
        "unit/training/test_choices.py::test_the_choice_that_the_next_request_holds_trains",
        "unit/training/test_choices.py::test_where_nothing_tells_none_trains_and_it_is_said",
        "unit/training/test_choices.py::"
        "test_a_request_sent_again_without_a_header_trains_what_went_on",
        "unit/training/test_choices.py::"
        "test_prompts_that_go_on_in_other_tokens_are_counted_and_told_once",
    ],
    "i. judges that reason cost two calls and the group": [
        "unit/judge/test_verdict_reasoning.py::"
        "test_an_answer_is_found_wherever_it_stands_with_one_paid_call",
        "integration/test_judge_choice.py::test_a_judge_that_reasons_is_read_with_one_call",
    ],
    "j. a score could not be audited: nothing said how its judge was asked": [
        "unit/judge/test_replay.py::"
        "test_the_same_group_is_asked_about_in_the_same_words_and_the_opinion_says_which",
        "unit/judge/test_replay.py::test_what_an_api_refuses_is_told_and_not_that_it_was_sent",
        "unit/judge/test_replay.py::"
        "test_attempts_that_are_seen_alone_have_each_a_prompt_of_their_own",
        "unit/judge/test_replay.py::test_an_opinion_that_does_not_count_says_how_it_came_about",
        "unit/controller/test_pure.py::"
        "test_a_listed_trajectory_has_what_each_judge_said_about_it_alone",
    ],
    "k. a judge that sees places alone still trained": [
        "unit/judge/test_both_orders.py::test_a_judge_that_sees_places_alone_ranks_nobody",
        "unit/judge/test_t26_prompt.py::"
        "test_t26_c_a_judge_that_favours_places_shows_in_the_statistic",
        "chart/test_alerts.py::test_each_fault_fires_its_alert_and_no_other",
    ],
    "l. budgets were soft, the tutorial's default action searched for other words, a judge without"
    " credit had no chat completion, and a lost call cost its whole group": [
        "unit/judge/test_budget_in_flight.py::"
        "test_forty_groups_at_once_never_spend_more_than_their_budget",
        "unit/judge/test_budget_in_flight.py::test_over_grpc_a_budget_is_as_hard",
        "unit/judge/test_t26_memory.py::test_answers_without_usage_count_against_the_budget",
        "unit/controller/test_judge_spending.py::test_two_real_replicas_keep_to_one_budget",
        "unit/environments/test_email_tutorial_mode.py::"
        "test_s10_the_environment_reads_replies_as_the_tutorial_does",
        "unit/judge/test_ruler.py::test_a_judge_without_credit_leave_or_model_is_away",
        "unit/rollout/test_group.py::test_a_lost_call_costs_its_attempt_which_begins_again_alone",
    ],
}


def test_a_test_holds_each() -> None:
    wrong = wrong_of(HELD.items(), gone)
    assert not wrong, wrong
