"""Measure an agent on scenarios: a policy, a baseline, or a model behind an OpenAI API.

attempts = await run_local(EmailSearch, {}, scenarios, EmailSearch.baselines["scripted"])
summary = summarise(attempts)            # success with its interval, pass@k, reward
compare(attempts, others).p_value        # the same scenarios, paired
"""

from podium.core.statistics import (
    clustered_mean_interval,
    clustered_proportion_interval,
    clustered_share_interval,
    paired_interval,
    pass_at_k,
    sign_flip_p_value,
    wilson_interval,
)
from podium.sdk.evaluation.attempts import Attempt, Summary, answered, by_scenario, summarise
from podium.sdk.evaluation.chat_model import ChatModel
from podium.sdk.evaluation.compare import Comparison, Paired, ScenarioMeans, compare, pair
from podium.sdk.evaluation.judged import Judged, judge_wins
from podium.sdk.evaluation.local import run_local
from podium.sdk.evaluation.of_jobs import is_of_job, job_evaluation
from podium.sdk.evaluation.remote import run_policy
from podium.sdk.evaluation.retries import NotAnsweredError, Retries
from podium.sdk.evaluation.scored import Scored, Verdict, judge_rewards, rescored
from podium.sdk.evaluation.stored import (
    attempts_of,
    check_same_scenarios,
    differences,
    means_of,
    other_scenarios,
    results_of,
)

__all__ = [
    "Attempt",
    "ChatModel",
    "Comparison",
    "Judged",
    "NotAnsweredError",
    "Paired",
    "Retries",
    "ScenarioMeans",
    "Scored",
    "Summary",
    "Verdict",
    "answered",
    "attempts_of",
    "by_scenario",
    "check_same_scenarios",
    "clustered_mean_interval",
    "clustered_proportion_interval",
    "clustered_share_interval",
    "compare",
    "differences",
    "is_of_job",
    "job_evaluation",
    "judge_rewards",
    "judge_wins",
    "means_of",
    "other_scenarios",
    "pair",
    "paired_interval",
    "pass_at_k",
    "rescored",
    "results_of",
    "run_local",
    "run_policy",
    "sign_flip_p_value",
    "summarise",
    "wilson_interval",
]
