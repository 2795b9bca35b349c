"""Typed specs of jobs. Written by tools/specs.py from proto/ (`make proto`): do not edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from podium.core.specs.base import Spec
from podium.types.v1 import policy_pb2, spec_pb2

__all__ = [
    "BudgetSpec",
    "ClientSpec",
    "Criterion",
    "DistillationSpec",
    "EnvironmentSpec",
    "EpisodeSpec",
    "EvaluationSpec",
    "ForkSpec",
    "HttpScorerSpec",
    "JobSpec",
    "JudgeModel",
    "LangfuseSpec",
    "LoraSpec",
    "LossSpec",
    "MlflowSpec",
    "ModelPlayer",
    "OpenPipeSpec",
    "Rendering",
    "RetentionSpec",
    "RewardSpec",
    "RolloutSpec",
    "RubricSpec",
    "RulerSpec",
    "SamplingParams",
    "Scorer",
    "SftSpec",
    "TrackingSpec",
    "TrainerSpec",
    "TrainingSpec",
    "WandbSpec",
    "WeightedCriteria",
    "WeightedEnvironment",
]

AdvantageKind = Literal["std", "none", "batch"]
"""How a group's rewards become advantages. The group's mean is removed by all.

- `std`: Divided by the group's deviation + 1e-6 (GRPO).
- `none`: Not divided (Dr. GRPO).
- `batch`: Divided by the deviation of all rewards of the step + 1e-6.
"""

AggregationKind = Literal["token", "sequence", "constant"]
"""How token losses become one number. Each is of the whole optimizer batch (the step's, or a
mini-batch's where it has several), whatever the rows.

- `token`: Mean over all trained tokens of the optimizer batch.
- `sequence`: Mean over trajectories of each one's token mean.
- `constant`: Sum over tokens, divided by trajectories times `aggregation_tokens` (Dr. GRPO).
"""

BestMode = Literal["max", "min"]
"""Which end of a metric is the better one.

- `max`: The greatest number.
- `min`: The least number.
"""

ComputeDtype = Literal["bfloat16", "float32"]
"""Compute type of the forward and backward pass. Master weights and optimizer are float32 in
both.

- `bfloat16`: bfloat16.
- `float32`: float32.
"""

ContextPolicy = Literal["cap", "stop"]
"""What happens when the context window has less room than max_tokens.

- `cap`: The turn is sampled with what room there is, and counted in the trajectory's metric
  `capped_turns`. Without any room the episode ends.
- `stop`: The episode ends before that turn (STOP_REASON_CONTEXT_LENGTH).
"""

Deviation = Literal["population", "sample"]
"""Which standard deviation.

- `population`: Divided by n.
- `sample`: Divided by n - 1.
"""

GroupOrder = Literal["fixed", "ready"]
"""Which groups a step trains.

- `fixed`: Those that are drawn for it, however long the slowest of them takes.
- `ready`: The first that are ready, in the order in which they become so. A slow one trains
  in a later step; one that is not ready while max_staleness allows is ended, and its scenario
  attempted anew, a few times.
"""

HttpScorerProtocol = Literal["score", "classify", "pooling"]
"""What a scorer that is served over HTTP understands.

- `score`: `POST {base_url}/score` with a whole group, as the judge service's README has it;
  `podium scorer serve` serves a function so.
- `classify`: `POST {base_url}/classify` of vLLM, once for each conversation: the probability
  of a class, or the score of a reward model with one output.
- `pooling`: `POST {base_url}/pooling` of vLLM, once for each conversation: the number that a
  reward model gives it, and of one for each token the last.
"""

KlEstimator = Literal["k1", "k2", "k3", "k3_plus"]
"""Estimator of the KL divergence to the reference policy, with p the policy and q the reference.

- `k1`: log p - log q: unbiased value, no expected gradient on-policy.
- `k2`: (log p - log q)^2 / 2: the gradient is that of the KL.
- `k3`: q/p - 1 - log(q/p): unbiased and never negative.
- `k3_plus`: The value of k3 with the gradient of k2.
"""

KlPlacement = Literal["loss", "advantage"]
"""Where the KL divergence acts.

- `loss`: Added to the loss.
- `advantage`: Taken from the advantage, its mean over the step's trained tokens first
  removed: it says where to diverge less, not how far to learn.
"""

Objective = Literal["clipped", "cispo", "gspo", "reinforce", "supervised"]
"""What moves the policy. A is a token's advantage, r its ratio to the old policy.

- `clipped`: PPO's clipped surrogate: -min(r A, clip(r, 1 - epsilon, 1 + epsilon_high) A). The
  default clip is DAPO's (arXiv 2503.14476).
- `cispo`: CISPO: -clip(r, 1 - epsilon, 1 + epsilon_high) A log p, the clipped ratio without
  gradient. The default clip is ART's, a weight of 0 to 5.
- `gspo`: GSPO: the clipped surrogate with one ratio a trajectory, the geometric mean of its
  tokens'. The default clip is its paper's (arXiv 2507.18071).
- `reinforce`: REINFORCE: -A log p.
- `supervised`: Supervised fine-tuning: -log p of every sampled token. Rewards are not read.
"""

OldPolicy = Literal["sampler", "trainer"]
"""Whose log-probs a token's ratio is taken against.

- `sampler`: The policy that sampled the token, by the sampler's own log-probs: the ratio
  corrects staleness and the difference of the two programs at once.
- `trainer`: The trainer's policy before the step: in a step's first update the ratio is 1 and
  carries the gradient alone. `importance_cap` corrects for the sampler.
"""

Overlong = Literal["train", "mask", "penalize"]
"""What becomes of an attempt that was cut: a generation that reached max_tokens, or an episode
that outgrew the model's context.

- `train`: It trains as any other.
- `mask`: It stays in the group's mean and leaves the loss (DAPO's filtering).
- `penalize`: `overlong_penalty` is taken from its reward.
"""

PanelCombination = Literal["mean", "median"]
"""How the scores of several judges become one.

- `mean`: Their mean.
- `median`: Their median; of an even number, the mean of the middle two.
"""

RatioLevel = Literal["token", "sequence", "average", "geometric_average"]
"""Over what a ratio is averaged.

- `token`: Each token its own.
- `sequence`: The geometric mean over the trajectory.
- `average`: The arithmetic mean of the two.
- `geometric_average`: The geometric mean of the two.
"""

Schedule = Literal["constant", "linear", "cosine"]
"""How the learning rate goes on after the warm-up.

- `constant`: Constant.
- `linear`: Linear to 0 after the last step.
- `cosine`: Half a cosine to 0 after the last step.
"""

ScorerKind = Literal["environment", "weighted", "ruler", "rubric", "http"]
"""Who scores.

- `environment`: The environment's own reward, passed through.
- `weighted`: Weighted criteria: accuracy, efficiency, completeness, satisfaction.
- `ruler`: RULER: one or more judge models rank the attempts of the group.
- `rubric`: A rubric: a judge model grades each attempt alone, criterion by criterion.
- `http`: Something that is served over HTTP: a reward model, or one's own code.
"""

ToolFormat = Literal["auto", "native", "text"]
"""How a model is told of tools and calls them.

- `auto`: As the model's chat template writes tools and calls, if it does and the calls can be
  read; else as text.
- `native`: As the model's chat template does. A job whose model has no such template fails
  (NO_TOOL_TEMPLATE).
- `text`: As text: the system message says what there is and that a call is `call: NAME
  {"argument": "value"}`; results come as a user's messages.
"""

TrainableKind = Literal["lora", "full"]
"""What trains.

- `lora`: A low-rank adapter on the frozen base model.
- `full`: Every weight of the base model.
"""

TurnAdvantage = Literal["none", "return_to_go", "added"]
"""What a token's advantage is of. A turn's return is what it and the turns after it earned,
discounted: G_k = r_k + gamma r_(k+1) + gamma^2 r_(k+2) + …. A turn earns what the environment
pays from its step to the policy's next turn, with the weight of the environment in the
reward; the last turn also earns the rest of the trajectory's reward, so that without a
discount the first turn's return is the whole. Baseline is the mean return of the group's
attempts at the same turn; a turn that only one attempt came to has advantage 0. `advantage`
and `deviation` scale as they do rewards, `std` by the group's deviation over all its turns.

- `none`: Its trajectory's reward, the same for every turn (GRPO).
- `return_to_go`: Its turn's return (REINFORCE with reward-to-go).
- `added`: Both: the trajectory's advantage and turn_weight times the turn's, as GiGPO adds
  them (arXiv 2505.10978).
"""

WandbMode = Literal["online", "offline"]
"""Whether a run of W&B goes to its server.

- `online`: To the server.
- `offline`: To files of the tracking service, for `wandb sync`.
"""

WeightUpdate = Literal["drain", "in_flight"]
"""What becomes of the generations of a policy that run when a pool gets a newer version of it.

- `drain`: They end under the version that they began with. A merged pool holds new ones back
  meanwhile.
- `in_flight`: They go on under the new version, from the tokens that they have, which are
  computed anew; each token is told with the version that sampled it. Only those that name
  their version end first. A pool of adapters holds both versions: there they end under the
  one that they began with, and nothing waits for that.
"""


class JobSpec(Spec[spec_pb2.JobSpec]):
    """What a job trains, on what, and how. A job file is this message as YAML.

    Args:
        base_model: The base model, as the inference pool and the trainer name it. Required.
            Allowed: at most 256 characters.
        environment: The task. Required without `environments`, but for a job with `client`,
            which needs one only to be evaluated.
        rollout: How attempts are collected.
        reward: How attempts are scored; absent for the environment's own reward.
        training: How the model learns. Required.
        evaluation: How progress is measured; absent for no evaluation.
        retention: Which checkpoints stay.
        seed: Seed of scenario order, sampling, adapter and dropout. Default 0. Allowed: from
            0 up.
        recovery_timeout_seconds: Seconds that the job waits for a lost service before it
            fails. Default 600. Allowed: above 0, up to 86400.
        client: Set, the groups of every step come from the job's client
            (podium.jobs.v1.SessionService) instead of the rollout service.
        fork: Set, the job starts from another model's checkpoint instead of from the base
            model: weights and optimizer, with the steps counted on from there.
        trainer: Where it trains: in a trainer pool beside other jobs, or in a trainer of its
            own, and where that runs on Kubernetes. Without a cluster there is one trainer,
            and nothing of the latter is to be chosen.
        project: The project that it counts for: its limits, and its share of a pool. Which
            there are, with which limits, is the installation's to say; one that names none
            takes every name. Default `default`. Allowed: matches
            [a-z0-9]([-a-z0-9]*[a-z0-9])?; at most 63 characters.
        tracking: Which trackers its numbers and episodes are sent to, by the tracking
            service; absent for none. A tracker that is slow or away never slows or fails the
            job.
        budget: What it may use. At the first step's border where it has used as much, it
            pauses (`BUDGET_EXHAUSTED`), and goes on when it is resumed with more. Absent for
            no bound.
        environments: Several tasks in place of `environment`: each group is of one of them,
            and each has its own numbers, `env/NAME/…`. One alone is `environment`, of weight
            1. Allowed: at most 64 items.
        sft: Set, the job is supervised fine-tuning on rows that its client sends: no judge is
            asked, and tokens may be anybody's. Needs `client`, and makes `supervised` the
            default.
        distillation: Set, a teacher tells the policy, token by token, how likely it would
            have said what was sampled (on-policy distillation); see
            `training.loss.teacher_coefficient`.
    """

    message_class = spec_pb2.JobSpec

    base_model: str | None = None
    """The base model, as the inference pool and the trainer name it. Required. Allowed: at most
    256 characters.
    """
    environment: EnvironmentSpec | None = None
    """The task. Required without `environments`, but for a job with `client`, which needs one
    only to be evaluated.
    """
    rollout: RolloutSpec | None = None
    """How attempts are collected."""
    reward: RewardSpec | None = None
    """How attempts are scored; absent for the environment's own reward."""
    training: TrainingSpec | None = None
    """How the model learns. Required."""
    evaluation: EvaluationSpec | None = None
    """How progress is measured; absent for no evaluation."""
    retention: RetentionSpec | None = None
    """Which checkpoints stay."""
    seed: int | None = None
    """Seed of scenario order, sampling, adapter and dropout. Default 0. Allowed: from 0 up."""
    recovery_timeout_seconds: float | None = None
    """Seconds that the job waits for a lost service before it fails. Default 600. Allowed: above
    0, up to 86400.
    """
    client: ClientSpec | None = None
    """Set, the groups of every step come from the job's client (podium.jobs.v1.SessionService)
    instead of the rollout service.
    """
    fork: ForkSpec | None = None
    """Set, the job starts from another model's checkpoint instead of from the base model:
    weights and optimizer, with the steps counted on from there.
    """
    trainer: TrainerSpec | None = None
    """Where it trains: in a trainer pool beside other jobs, or in a trainer of its own, and
    where that runs on Kubernetes. Without a cluster there is one trainer, and nothing of the
    latter is to be chosen.
    """
    project: str | None = None
    """The project that it counts for: its limits, and its share of a pool. Which there are, with
    which limits, is the installation's to say; one that names none takes every name. Default
    `default`. Allowed: matches [a-z0-9]([-a-z0-9]*[a-z0-9])?; at most 63 characters.
    """
    tracking: TrackingSpec | None = None
    """Which trackers its numbers and episodes are sent to, by the tracking service; absent for
    none. A tracker that is slow or away never slows or fails the job.
    """
    budget: BudgetSpec | None = None
    """What it may use. At the first step's border where it has used as much, it pauses
    (`BUDGET_EXHAUSTED`), and goes on when it is resumed with more. Absent for no bound.
    """
    environments: Sequence[WeightedEnvironment] | None = None
    """Several tasks in place of `environment`: each group is of one of them, and each has its
    own numbers, `env/NAME/…`. One alone is `environment`, of weight 1. Allowed: at most 64
    items.
    """
    sft: SftSpec | None = None
    """Set, the job is supervised fine-tuning on rows that its client sends: no judge is asked,
    and tokens may be anybody's. Needs `client`, and makes `supervised` the default.
    """
    distillation: DistillationSpec | None = None
    """Set, a teacher tells the policy, token by token, how likely it would have said what was
    sampled (on-policy distillation); see `training.loss.teacher_coefficient`.
    """


class BudgetSpec(Spec[spec_pb2.BudgetSpec]):
    """What a job may use, by `Job.usage`; each may be left out.

    Args:
        max_gpu_hours: GPU hours of its trainer and of its share of its pool together.
            Allowed: above 0, up to 1000000000.
        max_judge_cost: What its judges may cost, which needs prices for all of them, and its
            scorers over HTTP that have a `call_price`. It bounds groups too, as
            RulerSpec.max_job_cost does: none is judged that could cost more than is left,
            after which the job pauses. Allowed: above 0, up to 1000000000.
        max_sampled_tokens: Tokens that the policy samples, evaluations included. Allowed:
            from 1 up.
        max_trainer_hours: Hours in which it holds a trainer, on a CPU as well. Allowed: above
            0, up to 1000000000.
    """

    message_class = spec_pb2.BudgetSpec

    max_gpu_hours: float | None = None
    """GPU hours of its trainer and of its share of its pool together. Allowed: above 0, up to
    1000000000.
    """
    max_judge_cost: float | None = None
    """What its judges may cost, which needs prices for all of them, and its scorers over HTTP
    that have a `call_price`. It bounds groups too, as RulerSpec.max_job_cost does: none is
    judged that could cost more than is left, after which the job pauses. Allowed: above 0, up
    to 1000000000.
    """
    max_sampled_tokens: int | None = None
    """Tokens that the policy samples, evaluations included. Allowed: from 1 up."""
    max_trainer_hours: float | None = None
    """Hours in which it holds a trainer, on a CPU as well. Allowed: above 0, up to 1000000000."""


class ClientSpec(Spec[spec_pb2.ClientSpec]):
    """How a job whose groups come from its client treats it.

    Args:
        idle_seconds: Seconds without a batch after which the job pauses by itself (phase
            `idle`) and gives its trainer back, until the next batch, ResumeJob or FinishJob.
            A client that says that it lives, and then falls silent, is waited for only while
            no other job wants the place; see SessionService.Heartbeat. Default 600. Allowed:
            above 0, up to 604800.
    """

    message_class = spec_pb2.ClientSpec

    idle_seconds: float | None = None
    """Seconds without a batch after which the job pauses by itself (phase `idle`) and gives its
    trainer back, until the next batch, ResumeJob or FinishJob. A client that says that it
    lives, and then falls silent, is waited for only while no other job wants the place; see
    SessionService.Heartbeat. Default 600. Allowed: above 0, up to 604800.
    """


class Criterion(Spec[spec_pb2.Criterion]):
    """One thing that a rubric looks at.

    Args:
        name: Its name, of which a rubric has one. Required. Allowed: matches [A-Za-z0-9_-]+;
            at most 64 characters.
        description: What a judge is to look for: when it gives 1, and when 0. Required.
            Allowed: at most 4096 characters.
        weight: Its share of the score, relative to the others'. Default 1. Allowed: above 0,
            up to 1000.
    """

    message_class = spec_pb2.Criterion

    name: str | None = None
    """Its name, of which a rubric has one. Required. Allowed: matches [A-Za-z0-9_-]+; at most 64
    characters.
    """
    description: str | None = None
    """What a judge is to look for: when it gives 1, and when 0. Required. Allowed: at most 4096
    characters.
    """
    weight: float | None = None
    """Its share of the score, relative to the others'. Default 1. Allowed: above 0, up to 1000."""


class DistillationSpec(Spec[spec_pb2.DistillationSpec]):
    """Whom a job's policy learns from. The teacher is asked for the log-prob of every sampled
    token in its place, at temperature 1, and samples nothing.

    Args:
        teacher: The teacher: `JOB@VERSION` or `JOB@ALIAS` of the registry, `JOB` for its
            newest version, or `base` for the base model of its pool. What it names at the
            job's creation stays the teacher. Never the job itself. Empty, with no pool, for
            no distillation. Allowed: at most 256 characters.
        pool: The inference pool that serves the teacher, by its name in the installation; its
            base model may be another one of the same tokenizer. Empty for the pool that
            serves the job, which must then be of adapters: a pool with merged weights holds
            one policy. Allowed: matches [a-z0-9]([-a-z0-9]*[a-z0-9])?; at most 63 characters.
    """

    message_class = spec_pb2.DistillationSpec

    teacher: str | None = None
    """The teacher: `JOB@VERSION` or `JOB@ALIAS` of the registry, `JOB` for its newest version,
    or `base` for the base model of its pool. What it names at the job's creation stays the
    teacher. Never the job itself. Empty, with no pool, for no distillation. Allowed: at most
    256 characters.
    """
    pool: str | None = None
    """The inference pool that serves the teacher, by its name in the installation; its base
    model may be another one of the same tokenizer. Empty for the pool that serves the job,
    which must then be of adapters: a pool with merged weights holds one policy. Allowed:
    matches [a-z0-9]([-a-z0-9]*[a-z0-9])?; at most 63 characters.
    """


class EnvironmentSpec(Spec[spec_pb2.EnvironmentSpec]):
    """Which environment, and where it runs.

    Args:
        name: A built-in environment's name, or the remote one's. Required. Allowed: at most
            128 characters.
        address: `host:port` of a podium.environment.v1 server; empty for a built-in one.
            Allowed: at most 256 characters.
        config: Options of the environment.
        split: Split to train on. Default `train`. Allowed: at most 64 characters.
        image: Image of a podium.environment.v1 server, which the controller runs on
            Kubernetes while the job does; in place of `address`. Allowed: at most 512
            characters.
        replicas: Pods of that image. Default 1. Allowed: from 1 to 1000.
    """

    message_class = spec_pb2.EnvironmentSpec

    name: str | None = None
    """A built-in environment's name, or the remote one's. Required. Allowed: at most 128
    characters.
    """
    address: str | None = None
    """`host:port` of a podium.environment.v1 server; empty for a built-in one. Allowed: at most
    256 characters.
    """
    config: Mapping[str, Any] | None = None
    """Options of the environment."""
    split: str | None = None
    """Split to train on. Default `train`. Allowed: at most 64 characters."""
    image: str | None = None
    """Image of a podium.environment.v1 server, which the controller runs on Kubernetes while the
    job does; in place of `address`. Allowed: at most 512 characters.
    """
    replicas: int | None = None
    """Pods of that image. Default 1. Allowed: from 1 to 1000."""


class EpisodeSpec(Spec[spec_pb2.EpisodeSpec]):
    """Bounds of one episode, and how it is played.

    Args:
        max_turns: Most assistant turns. Default 8. Allowed: from 1 to 1000.
        timeout_seconds: Seconds an episode may take, environment and model together, before
            it is cut and scored as it stands. What it is queued for is not its time. Default
            300. Allowed: above 0, up to 86400.
        step_timeout_seconds: Seconds one reset, step or score of the environment may take,
            those aside in which it is queued. Default 60. Allowed: above 0, up to 86400.
        session_wait_seconds: Seconds an episode may be queued in all, outside of its own
            time: for a free session of a remote environment before it begins, and later for
            what the environment's episodes share, such as a place for a program. Then its
            group is given up for another time. Default 600. Allowed: above 0, up to 86400.
        tool_format: How the model is told of tools and calls them. Default `auto`.
        context_policy: What happens when the context window has less room than max_tokens.
            Default `cap`.
        players: Who speaks in a conversation of the environment's instead of the policy: by
            the conversation's name (`agent` for the main one, `opponent`, …) `baseline:NAME`
            for an agent of the environment's own, which must be built in, or `base`,
            `JOB@VERSION` or `JOB` for another policy that the pool serves. What they say is
            not trained on.
        model_players: The same for models that this installation does not train: who speaks
            in a conversation, by its name, such as a user who is played by a larger model. A
            conversation is in one of the two at most.
        chat_template_kwargs: What the model's chat template is told besides the messages, as
            far as it knows it: `enable_thinking: false` of Qwen3, `reasoning_effort: low` of
            gpt-oss. At most 16 KiB.
        rendering: How the job's pool must render and read: only pools whose own is this are
            taken, and a job that none of them could run is refused when it is created. What
            is empty may be anything.
    """

    message_class = spec_pb2.EpisodeSpec

    max_turns: int | None = None
    """Most assistant turns. Default 8. Allowed: from 1 to 1000."""
    timeout_seconds: float | None = None
    """Seconds an episode may take, environment and model together, before it is cut and scored
    as it stands. What it is queued for is not its time. Default 300. Allowed: above 0, up to
    86400.
    """
    step_timeout_seconds: float | None = None
    """Seconds one reset, step or score of the environment may take, those aside in which it is
    queued. Default 60. Allowed: above 0, up to 86400.
    """
    session_wait_seconds: float | None = None
    """Seconds an episode may be queued in all, outside of its own time: for a free session of a
    remote environment before it begins, and later for what the environment's episodes share,
    such as a place for a program. Then its group is given up for another time. Default 600.
    Allowed: above 0, up to 86400.
    """
    tool_format: ToolFormat | None = None
    """How the model is told of tools and calls them. Default `auto`."""
    context_policy: ContextPolicy | None = None
    """What happens when the context window has less room than max_tokens. Default `cap`."""
    players: Mapping[str, str] | None = None
    """Who speaks in a conversation of the environment's instead of the policy: by the
    conversation's name (`agent` for the main one, `opponent`, …) `baseline:NAME` for an agent
    of the environment's own, which must be built in, or `base`, `JOB@VERSION` or `JOB` for
    another policy that the pool serves. What they say is not trained on.
    """
    model_players: Mapping[str, ModelPlayer] | None = None
    """The same for models that this installation does not train: who speaks in a conversation,
    by its name, such as a user who is played by a larger model. A conversation is in one of
    the two at most.
    """
    chat_template_kwargs: Mapping[str, Any] | None = None
    """What the model's chat template is told besides the messages, as far as it knows it:
    `enable_thinking: false` of Qwen3, `reasoning_effort: low` of gpt-oss. At most 16 KiB.
    """
    rendering: Rendering | None = None
    """How the job's pool must render and read: only pools whose own is this are taken, and a job
    that none of them could run is refused when it is created. What is empty may be anything.
    """


class EvaluationSpec(Spec[spec_pb2.EvaluationSpec]):
    """How progress is measured.

    Args:
        split: Split to evaluate on. Default `heldout`. Allowed: at most 64 characters.
        every_steps: Steps between evaluations; the first policy and the last are always
            evaluated. 0 for only those two. Default 0. Allowed: from 0 to 1000000.
        scenarios: Scenarios of the split to use, from its start; 0 for all. Default 0.
            Allowed: from 0 to 1000000.
        samples: Attempts of each scenario at the training temperature. Default 1. Allowed:
            from 1 to 1024.
        greedy: Whether to attempt each scenario once more greedily. Default false.
        best_metric: Which number of an evaluation makes a checkpoint the best: `reward`,
            `win_rate` where RULER judges, or a metric that the environment reports; of one of
            several environments with `env/NAME/` before it, and of the greedy attempts with
            `greedy/` before that. Default `success`. Allowed: at most 128 characters.
        players: As EpisodeSpec.players, and added to the players of the training episodes, of
            either kind, whose entry of the same conversation it replaces.
        environments: Names of those of the job's `environments` to evaluate on; none for all.
            `split` and `scenarios` are of each. Allowed: at most 64 items.
        reward: How the attempts are scored; absent for the environment's own reward, or see
            job_reward. Scorers that look at an attempt alone make the metric `reward`, a
            weighted sum as in training; attempts that cannot be scored are left out. RULER,
            whose scores compare only what it saw together, is asked in both orders about the
            attempts of a version and those of the job's first version at the same scenario,
            and makes the metric `win_rate`: the share of comparisons that the version won, a
            tie counting half. The first version has 0.5 by definition. The weight of RULER is
            not read. What judges use counts for the job and its budget.
        best_mode: Which end of `best_metric` is the better one. Default `max`.
        job_reward: Whether the job's own `reward` is that of its evaluations too; not with
            `reward` here. Default false.
        model_players: As EpisodeSpec.model_players, and added to the players of the training
            episodes, of either kind, whose entry of the same conversation it replaces.
    """

    message_class = spec_pb2.EvaluationSpec

    split: str | None = None
    """Split to evaluate on. Default `heldout`. Allowed: at most 64 characters."""
    every_steps: int | None = None
    """Steps between evaluations; the first policy and the last are always evaluated. 0 for only
    those two. Default 0. Allowed: from 0 to 1000000.
    """
    scenarios: int | None = None
    """Scenarios of the split to use, from its start; 0 for all. Default 0. Allowed: from 0 to
    1000000.
    """
    samples: int | None = None
    """Attempts of each scenario at the training temperature. Default 1. Allowed: from 1 to 1024."""
    greedy: bool | None = None
    """Whether to attempt each scenario once more greedily. Default false."""
    best_metric: str | None = None
    """Which number of an evaluation makes a checkpoint the best: `reward`, `win_rate` where
    RULER judges, or a metric that the environment reports; of one of several environments
    with `env/NAME/` before it, and of the greedy attempts with `greedy/` before that. Default
    `success`. Allowed: at most 128 characters.
    """
    players: Mapping[str, str] | None = None
    """As EpisodeSpec.players, and added to the players of the training episodes, of either kind,
    whose entry of the same conversation it replaces.
    """
    environments: Sequence[str] | None = None
    """Names of those of the job's `environments` to evaluate on; none for all. `split` and
    `scenarios` are of each. Allowed: at most 64 items.
    """
    reward: RewardSpec | None = None
    """How the attempts are scored; absent for the environment's own reward, or see job_reward.
    Scorers that look at an attempt alone make the metric `reward`, a weighted sum as in
    training; attempts that cannot be scored are left out. RULER, whose scores compare only
    what it saw together, is asked in both orders about the attempts of a version and those of
    the job's first version at the same scenario, and makes the metric `win_rate`: the share
    of comparisons that the version won, a tie counting half. The first version has 0.5 by
    definition. The weight of RULER is not read. What judges use counts for the job and its
    budget.
    """
    best_mode: BestMode | None = None
    """Which end of `best_metric` is the better one. Default `max`."""
    job_reward: bool | None = None
    """Whether the job's own `reward` is that of its evaluations too; not with `reward` here.
    Default false.
    """
    model_players: Mapping[str, ModelPlayer] | None = None
    """As EpisodeSpec.model_players, and added to the players of the training episodes, of either
    kind, whose entry of the same conversation it replaces.
    """


class ForkSpec(Spec[spec_pb2.ForkSpec]):
    """Where a job starts when it does not start from the base model.

    Args:
        model: A model of the registry: another job's id. It must have the base model and what
            trains (adapter shape) in common with this one. Empty for no fork. Allowed:
            matches [a-z0-9]([-a-z0-9]*[a-z0-9])?; at most 128 characters.
        version: The version; absent for the newest one. Allowed: from 0 up.
    """

    message_class = spec_pb2.ForkSpec

    model: str | None = None
    """A model of the registry: another job's id. It must have the base model and what trains
    (adapter shape) in common with this one. Empty for no fork. Allowed: matches
    [a-z0-9]([-a-z0-9]*[a-z0-9])?; at most 128 characters.
    """
    version: int | str | None = None
    """The version; absent for the newest one. Allowed: from 0 up."""


class HttpScorerSpec(Spec[spec_pb2.HttpScorerSpec]):
    """A scorer that is served over HTTP. Its scores may be any finite numbers.

    Args:
        base_url: Where it is served, without the path that the protocol adds. Required.
            Allowed: at most 1024 characters.
        protocol: What it understands. Default `score`.
        model: The reward model's name there; empty for the one that is served. Not with
            `score`. Allowed: at most 256 characters.
        api_key_env: Environment variable of the judge service that holds the API key; it must
            begin with `PODIUM_JUDGE_KEY`. Empty for no key. Allowed: matches
            PODIUM_JUDGE_KEY[A-Z0-9_]*; at most 128 characters.
        timeout_seconds: How long one request may take. Absent for the judge service's
            default. Allowed: above 0, up to 3600.
        class_index: With `classify`, of a classifier with several classes the one whose
            probability is the score, from 0. Allowed: from 0 to 65535.
        extra_body: Further fields of the request, such as `use_activation` of vLLM's, passed
            on as they are. None may be one that the judge service sets itself.
        max_job_tokens: Tokens that the job may have its reward models read, as in RulerSpec,
            where they say how many they read. Default 0. Allowed: from 0 up.
        call_price: What one answered call (HTTP 200) costs, whether its scores can be used or
            not; in the unit of the judges' prices, and part of `judge_cost`. Absent for a
            call that costs nothing. Allowed: from 0 to 1000000.
    """

    message_class = spec_pb2.HttpScorerSpec

    base_url: str | None = None
    """Where it is served, without the path that the protocol adds. Required. Allowed: at most
    1024 characters.
    """
    protocol: HttpScorerProtocol | None = None
    """What it understands. Default `score`."""
    model: str | None = None
    """The reward model's name there; empty for the one that is served. Not with `score`.
    Allowed: at most 256 characters.
    """
    api_key_env: str | None = None
    """Environment variable of the judge service that holds the API key; it must begin with
    `PODIUM_JUDGE_KEY`. Empty for no key. Allowed: matches PODIUM_JUDGE_KEY[A-Z0-9_]*; at most
    128 characters.
    """
    timeout_seconds: float | None = None
    """How long one request may take. Absent for the judge service's default. Allowed: above 0,
    up to 3600.
    """
    class_index: int | None = None
    """With `classify`, of a classifier with several classes the one whose probability is the
    score, from 0. Allowed: from 0 to 65535.
    """
    extra_body: Mapping[str, Any] | None = None
    """Further fields of the request, such as `use_activation` of vLLM's, passed on as they are.
    None may be one that the judge service sets itself.
    """
    max_job_tokens: int | None = None
    """Tokens that the job may have its reward models read, as in RulerSpec, where they say how
    many they read. Default 0. Allowed: from 0 up.
    """
    call_price: float | None = None
    """What one answered call (HTTP 200) costs, whether its scores can be used or not; in the
    unit of the judges' prices, and part of `judge_cost`. Absent for a call that costs
    nothing. Allowed: from 0 to 1000000.
    """


class JudgeModel(Spec[spec_pb2.JudgeModel]):
    """A judge model: where it is served, how it is asked, what it costs.

    Args:
        base_url: Base URL of an OpenAI-compatible API, ending in `/v1`; empty for the judge
            service's default, which is Podium's own pool unless its operator set another.
            Allowed: at most 1024 characters.
        model: Model name at that API; empty for the judge service's default, else for the
            first that the API lists and no job trains. A pool that merges policies into its
            weights has none: there a judge must be named. Allowed: at most 256 characters.
        api_key_env: Environment variable of the judge service that holds the API key; it must
            begin with `PODIUM_JUDGE_KEY`. Empty for its default key. Allowed: matches
            PODIUM_JUDGE_KEY[A-Z0-9_]*; at most 128 characters.
        temperature: Sampling temperature. Absent for the judge service's default. Allowed:
            from 0 to 2.
        max_completion_tokens: Most tokens of an answer. Absent for the judge service's
            default. Allowed: from 16 to 1048576.
        extra_body: Further parameters of the request, such as `reasoning_effort`, passed on
            as they are. None may be one that the judge service sets itself.
        prompt_price: Price of a million tokens that it reads, in the job's currency. Absent
            for the judge service's price list. Allowed: from 0 to 1000000.
        completion_price: Price of a million tokens that it writes. Absent for the judge
            service's price list; set both prices or none. Allowed: from 0 to 1000000.
    """

    message_class = spec_pb2.JudgeModel

    base_url: str | None = None
    """Base URL of an OpenAI-compatible API, ending in `/v1`; empty for the judge service's
    default, which is Podium's own pool unless its operator set another. Allowed: at most 1024
    characters.
    """
    model: str | None = None
    """Model name at that API; empty for the judge service's default, else for the first that the
    API lists and no job trains. A pool that merges policies into its weights has none: there
    a judge must be named. Allowed: at most 256 characters.
    """
    api_key_env: str | None = None
    """Environment variable of the judge service that holds the API key; it must begin with
    `PODIUM_JUDGE_KEY`. Empty for its default key. Allowed: matches
    PODIUM_JUDGE_KEY[A-Z0-9_]*; at most 128 characters.
    """
    temperature: float | None = None
    """Sampling temperature. Absent for the judge service's default. Allowed: from 0 to 2."""
    max_completion_tokens: int | None = None
    """Most tokens of an answer. Absent for the judge service's default. Allowed: from 16 to
    1048576.
    """
    extra_body: Mapping[str, Any] | None = None
    """Further parameters of the request, such as `reasoning_effort`, passed on as they are. None
    may be one that the judge service sets itself.
    """
    prompt_price: float | None = None
    """Price of a million tokens that it reads, in the job's currency. Absent for the judge
    service's price list. Allowed: from 0 to 1000000.
    """
    completion_price: float | None = None
    """Price of a million tokens that it writes. Absent for the judge service's price list; set
    both prices or none. Allowed: from 0 to 1000000.
    """


class LangfuseSpec(Spec[spec_pb2.LangfuseSpec]):
    """Traces of Langfuse, in a session of the job's id.

    Args:
        secret: Secret of the tracking service, with `LANGFUSE_PUBLIC_KEY` and
            `LANGFUSE_SECRET_KEY`; empty for the service's own variables. Allowed: matches
            [a-z0-9]([-a-z0-9]*[a-z0-9])?; at most 63 characters.
        environment: The environment, as Langfuse has it. Default `default`. Allowed: matches
            [a-z0-9_-]+; at most 40 characters.
    """

    message_class = spec_pb2.LangfuseSpec

    secret: str | None = None
    """Secret of the tracking service, with `LANGFUSE_PUBLIC_KEY` and `LANGFUSE_SECRET_KEY`;
    empty for the service's own variables. Allowed: matches [a-z0-9]([-a-z0-9]*[a-z0-9])?; at
    most 63 characters.
    """
    environment: str | None = None
    """The environment, as Langfuse has it. Default `default`. Allowed: matches [a-z0-9_-]+; at
    most 40 characters.
    """


class LoraSpec(Spec[spec_pb2.LoraSpec]):
    """A low-rank adapter.

    Args:
        rank: Rank. Default 16. Allowed: from 1 to 1024.
        alpha: Scale numerator: the delta is alpha / rank times B A. Default 32. Allowed:
            above 0, up to 65536.
        target_modules: Names of the linear layers to adapt; none for all in the blocks.
            `experts` among them adapts the experts of a mixture too, of which none are linear
            layers: without it they do not train. Allowed: at most 64 items.
    """

    message_class = spec_pb2.LoraSpec

    rank: int | None = None
    """Rank. Default 16. Allowed: from 1 to 1024."""
    alpha: float | None = None
    """Scale numerator: the delta is alpha / rank times B A. Default 32. Allowed: above 0, up to
    65536.
    """
    target_modules: Sequence[str] | None = None
    """Names of the linear layers to adapt; none for all in the blocks. `experts` among them
    adapts the experts of a mixture too, of which none are linear layers: without it they do
    not train. Allowed: at most 64 items.
    """


class LossSpec(Spec[spec_pb2.LossSpec]):
    """The objective, and everything that bends it. Combinations that contradict each other are
    refused by name.

    Args:
        epsilon: Lower clip: the ratio's floor is 1 - epsilon. Default 0.2; 1 for CISPO,
            0.0003 for GSPO. Only for objectives with a clip. Allowed: above 0, up to 1.
        epsilon_high: Upper clip: the ratio's ceiling is 1 + epsilon_high. Default 0.28; 4 for
            CISPO, 0.0004 for GSPO. Only for objectives with a clip. Allowed: above 0, up to
            100.
        kl_coefficient: Weight of the KL to the base model; 0 skips the reference pass.
            Default 0. Allowed: from 0 to 100.
        kl_estimator: Its estimator. Default `k3`.
        advantage: Advantages. Default `std`.
        aggregation: Aggregation. Default `token`.
        objective: The objective. Default `clipped`.
        old_policy: What the ratio is taken against. Default `sampler`.
        ratio_level: Over what the ratio is averaged; other than by default only for `cispo`.
            Default `token`.
        deviation: Which deviation `std` and `batch` divide by. Default `population`.
        kl_placement: Where the KL acts. Default `loss`.
        kl_importance_weighted: Whether each token's KL in the loss is weighted by its ratio
            to the sampler, which makes it unbiased off-policy. Default false.
        importance_cap: Truncated importance sampling: each token's policy loss is multiplied
            by its ratio of trainer to sampler, at most this. For `reinforce`, or with
            `trainer`. Absent for none. Allowed: above 0, up to 1000.
        sequence_ratio_min: Least geometric mean of a trajectory's ratios of trainer to
            sampler; a trajectory below leaves the loss. Absent for no bound. Allowed: above
            0, up to 1.
        sequence_ratio_max: Greatest one. Absent for no bound. Allowed: from 1 to 1000.
        aggregation_tokens: Tokens that `constant` divides by; only for it. Allowed: from 1 to
            1048576.
        overlong: What becomes of attempts that were cut. Default `train`.
        overlong_penalty: What `penalize` takes from the reward; only for it. Allowed: above
            0, up to 1000.
        turn_advantage: Whether what each turn earned says what its tokens are worth. Needs a
            reward that the environment has a part in. Default `none`.
        turn_discount: What a reward is worth a turn earlier, gamma; below 1 not with `none`.
            Default 1. Allowed: from 0 to 1.
        turn_weight: Factor of the turn's advantage beside the trajectory's; only for `added`.
            Default 1. Allowed: above 0, up to 1000.
        teacher_coefficient: Weight of the teacher in each token's advantage: log p_teacher -
            log p of the token, within 20 nats, p being the policy before the step. Its
            expectation is the negative reverse KL (arXiv 2306.13649). Needs
            `JobSpec.distillation`; not with `supervised`. Default 0; 1 for a job with a
            teacher. Allowed: from 0 to 1000.
        reward_coefficient: Weight of the rewards' advantage beside the teacher's; 0 reads no
            rewards, and no judge is asked. Other than 1 only with a teacher. Default 0 with
            one, else 1. Allowed: from 0 to 1000.
    """

    message_class = spec_pb2.LossSpec

    epsilon: float | None = None
    """Lower clip: the ratio's floor is 1 - epsilon. Default 0.2; 1 for CISPO, 0.0003 for GSPO.
    Only for objectives with a clip. Allowed: above 0, up to 1.
    """
    epsilon_high: float | None = None
    """Upper clip: the ratio's ceiling is 1 + epsilon_high. Default 0.28; 4 for CISPO, 0.0004 for
    GSPO. Only for objectives with a clip. Allowed: above 0, up to 100.
    """
    kl_coefficient: float | None = None
    """Weight of the KL to the base model; 0 skips the reference pass. Default 0. Allowed: from 0
    to 100.
    """
    kl_estimator: KlEstimator | None = None
    """Its estimator. Default `k3`."""
    advantage: AdvantageKind | None = None
    """Advantages. Default `std`."""
    aggregation: AggregationKind | None = None
    """Aggregation. Default `token`."""
    objective: Objective | None = None
    """The objective. Default `clipped`."""
    old_policy: OldPolicy | None = None
    """What the ratio is taken against. Default `sampler`."""
    ratio_level: RatioLevel | None = None
    """Over what the ratio is averaged; other than by default only for `cispo`. Default `token`."""
    deviation: Deviation | None = None
    """Which deviation `std` and `batch` divide by. Default `population`."""
    kl_placement: KlPlacement | None = None
    """Where the KL acts. Default `loss`."""
    kl_importance_weighted: bool | None = None
    """Whether each token's KL in the loss is weighted by its ratio to the sampler, which makes
    it unbiased off-policy. Default false.
    """
    importance_cap: float | None = None
    """Truncated importance sampling: each token's policy loss is multiplied by its ratio of
    trainer to sampler, at most this. For `reinforce`, or with `trainer`. Absent for none.
    Allowed: above 0, up to 1000.
    """
    sequence_ratio_min: float | None = None
    """Least geometric mean of a trajectory's ratios of trainer to sampler; a trajectory below
    leaves the loss. Absent for no bound. Allowed: above 0, up to 1.
    """
    sequence_ratio_max: float | None = None
    """Greatest one. Absent for no bound. Allowed: from 1 to 1000."""
    aggregation_tokens: int | None = None
    """Tokens that `constant` divides by; only for it. Allowed: from 1 to 1048576."""
    overlong: Overlong | None = None
    """What becomes of attempts that were cut. Default `train`."""
    overlong_penalty: float | None = None
    """What `penalize` takes from the reward; only for it. Allowed: above 0, up to 1000."""
    turn_advantage: TurnAdvantage | None = None
    """Whether what each turn earned says what its tokens are worth. Needs a reward that the
    environment has a part in. Default `none`.
    """
    turn_discount: float | None = None
    """What a reward is worth a turn earlier, gamma; below 1 not with `none`. Default 1. Allowed:
    from 0 to 1.
    """
    turn_weight: float | None = None
    """Factor of the turn's advantage beside the trajectory's; only for `added`. Default 1.
    Allowed: above 0, up to 1000.
    """
    teacher_coefficient: float | None = None
    """Weight of the teacher in each token's advantage: log p_teacher - log p of the token,
    within 20 nats, p being the policy before the step. Its expectation is the negative
    reverse KL (arXiv 2306.13649). Needs `JobSpec.distillation`; not with `supervised`.
    Default 0; 1 for a job with a teacher. Allowed: from 0 to 1000.
    """
    reward_coefficient: float | None = None
    """Weight of the rewards' advantage beside the teacher's; 0 reads no rewards, and no judge is
    asked. Other than 1 only with a teacher. Default 0 with one, else 1. Allowed: from 0 to
    1000.
    """


class MlflowSpec(Spec[spec_pb2.MlflowSpec]):
    """A run of MLflow.

    Args:
        experiment: The experiment, which is made where there is none. Default `podium`.
            Allowed: at most 250 characters.
        name: The run's name; empty for the job's id. Allowed: at most 250 characters.
        secret: Secret of the tracking service, with `MLFLOW_TRACKING_URI`; empty for the
            service's own variables. Allowed: matches [a-z0-9]([-a-z0-9]*[a-z0-9])?; at most
            63 characters.
    """

    message_class = spec_pb2.MlflowSpec

    experiment: str | None = None
    """The experiment, which is made where there is none. Default `podium`. Allowed: at most 250
    characters.
    """
    name: str | None = None
    """The run's name; empty for the job's id. Allowed: at most 250 characters."""
    secret: str | None = None
    """Secret of the tracking service, with `MLFLOW_TRACKING_URI`; empty for the service's own
    variables. Allowed: matches [a-z0-9]([-a-z0-9]*[a-z0-9])?; at most 63 characters.
    """


class ModelPlayer(Spec[spec_pb2.ModelPlayer]):
    """A model behind an OpenAI-compatible API that speaks in a conversation. It is sent that
    conversation alone: what the environment says in it, its system message first, and its own
    answers. What it says is not trained on.

    Args:
        base_url: Base URL of the API, ending in `/v1`; a pool of Podium's has one too.
            Required. Allowed: at most 1024 characters.
        model: Model name at that API. Required. Allowed: at most 256 characters.
        api_key_env: Environment variable of the rollout service that holds the API key; it
            must begin with `PODIUM_ROLLOUT_KEY`, and base_url must be one that the service's
            operator trusts with keys. Empty for no key. Allowed: matches
            PODIUM_ROLLOUT_KEY[A-Z0-9_]*; at most 128 characters.
        temperature: Sampling temperature. Absent for the API's default. Allowed: from 0 to 2.
        max_completion_tokens: Most tokens of an answer. Absent for the API's default.
            Allowed: from 1 to 1048576.
        extra_body: Further parameters of the request, such as `reasoning_effort`, passed on
            as they are. None may be one that the rollout service sets itself.
    """

    message_class = spec_pb2.ModelPlayer

    base_url: str | None = None
    """Base URL of the API, ending in `/v1`; a pool of Podium's has one too. Required. Allowed:
    at most 1024 characters.
    """
    model: str | None = None
    """Model name at that API. Required. Allowed: at most 256 characters."""
    api_key_env: str | None = None
    """Environment variable of the rollout service that holds the API key; it must begin with
    `PODIUM_ROLLOUT_KEY`, and base_url must be one that the service's operator trusts with
    keys. Empty for no key. Allowed: matches PODIUM_ROLLOUT_KEY[A-Z0-9_]*; at most 128
    characters.
    """
    temperature: float | None = None
    """Sampling temperature. Absent for the API's default. Allowed: from 0 to 2."""
    max_completion_tokens: int | None = None
    """Most tokens of an answer. Absent for the API's default. Allowed: from 1 to 1048576."""
    extra_body: Mapping[str, Any] | None = None
    """Further parameters of the request, such as `reasoning_effort`, passed on as they are. None
    may be one that the rollout service sets itself.
    """


class OpenPipeSpec(Spec[spec_pb2.OpenPipeSpec]):
    """Reports of completions to OpenPipe.

    Args:
        secret: Secret of the tracking service, with `OPENPIPE_API_KEY`; empty for the
            service's own variables. Allowed: matches [a-z0-9]([-a-z0-9]*[a-z0-9])?; at most
            63 characters.
    """

    message_class = spec_pb2.OpenPipeSpec

    secret: str | None = None
    """Secret of the tracking service, with `OPENPIPE_API_KEY`; empty for the service's own
    variables. Allowed: matches [a-z0-9]([-a-z0-9]*[a-z0-9])?; at most 63 characters.
    """


class Rendering(Spec[spec_pb2.Rendering]):
    """How a pool writes conversations for its model, and reads the model's replies.

    Args:
        chat_template_digest: Digest of the chat template's text, `sha256:…`. Allowed: at most
            128 characters.
        reasoning_parser: How thoughts are read, by the names of
            PODIUM_INFERENCE_REASONING_PARSER; empty of a pool that takes them for a part of
            the answer. Allowed: at most 64 characters.
        tool_format: How calls of tools are written, by the names of
            PODIUM_INFERENCE_TOOL_FORMAT; `text` where the template shows no format. Allowed:
            at most 64 characters.
    """

    message_class = spec_pb2.Rendering

    chat_template_digest: str | None = None
    """Digest of the chat template's text, `sha256:…`. Allowed: at most 128 characters."""
    reasoning_parser: str | None = None
    """How thoughts are read, by the names of PODIUM_INFERENCE_REASONING_PARSER; empty of a pool
    that takes them for a part of the answer. Allowed: at most 64 characters.
    """
    tool_format: str | None = None
    """How calls of tools are written, by the names of PODIUM_INFERENCE_TOOL_FORMAT; `text` where
    the template shows no format. Allowed: at most 64 characters.
    """


class RetentionSpec(Spec[spec_pb2.RetentionSpec]):
    """Which checkpoints stay.

    Args:
        keep_last: Newest versions to keep. Default 3. Allowed: from 1 to 1000000.
        keep_best: Best versions to keep besides, by the evaluation's best_metric; of a job
            with `client` that is not evaluated, by `val/reward`. Default 1. Allowed: from 0
            to 1000000.
        state_interval: Every how many steps the optimizer's and the random state are stored,
            behind the weights, which every step publishes. After a crash the job goes on from
            the newest version with state, and takes the steps after it again from their
            stored groups. The last step's is always stored, and that of a job that pauses or
            is cancelled. Default 1. Allowed: from 1 to 10000.
    """

    message_class = spec_pb2.RetentionSpec

    keep_last: int | None = None
    """Newest versions to keep. Default 3. Allowed: from 1 to 1000000."""
    keep_best: int | None = None
    """Best versions to keep besides, by the evaluation's best_metric; of a job with `client`
    that is not evaluated, by `val/reward`. Default 1. Allowed: from 0 to 1000000.
    """
    state_interval: int | None = None
    """Every how many steps the optimizer's and the random state are stored, behind the weights,
    which every step publishes. After a crash the job goes on from the newest version with
    state, and takes the steps after it again from their stored groups. The last step's is
    always stored, and that of a job that pauses or is cancelled. Default 1. Allowed: from 1
    to 10000.
    """


class RewardSpec(Spec[spec_pb2.RewardSpec]):
    """How attempts are scored: the weighted sum of the scorers.

    Args:
        scorers: The scorers; none for the environment's own reward alone. Allowed: at most 16
            items.
    """

    message_class = spec_pb2.RewardSpec

    scorers: Sequence[Scorer] | None = None
    """The scorers; none for the environment's own reward alone. Allowed: at most 16 items."""


class RolloutSpec(Spec[spec_pb2.RolloutSpec]):
    """How attempts are collected.

    Args:
        group_size: Attempts of each scenario. Default 8. Allowed: from 2 to 1024.
        groups_per_step: Scenarios, that is groups, of each step. Default 8. Allowed: from 1
            to 4096.
        max_concurrent_groups: Most groups being collected at once. Default 8. Allowed: from 1
            to 4096.
        max_staleness: How many versions behind the trainer a sampled token may be: 0 collects
            strictly on-policy, 1 lets collection overlap one step of training. Default 0.
            Allowed: from 0 to 64.
        sampling: How tokens are drawn.
        episode: Bounds of an episode.
        group_order: Which groups a step trains. Default `ready` above max_staleness 0,
            otherwise `fixed`, which is all that is allowed there.
        dynamic_sampling: Whether a group that cannot teach is replaced (DAPO's dynamic
            sampling, arXiv 2503.14476): one whose attempts all failed, or all got the same
            reward. It stays in the step's record and numbers, and one more is drawn, until
            groups_per_step of them can teach or max_attempted_groups is met. Default true
            with `ready`, false with `fixed`.
        max_attempted_groups: Most groups that a step attempts; only with dynamic_sampling,
            and not fewer than groups_per_step. Then it trains with what it has. Default three
            times groups_per_step. Allowed: from 1 to 16384.
        weight_update: What becomes of the generations that run when the pool exchanges
            weights. Default `drain`; `in_flight` only with a max_staleness above 0.
        adaptive_concurrency: Whether the queue of the pool's engines says how many groups are
            collected at once: groups_per_step at first, more while no request waits there and
            some have room, fewer while many wait, never more than max_concurrent_groups
            (additive increase, multiplicative decrease, as TCP does, RFC 5681). Only with
            `ready`, and a max_concurrent_groups above groups_per_step. Without it
            max_concurrent_groups is the bound at all times. Default false.
    """

    message_class = spec_pb2.RolloutSpec

    group_size: int | None = None
    """Attempts of each scenario. Default 8. Allowed: from 2 to 1024."""
    groups_per_step: int | None = None
    """Scenarios, that is groups, of each step. Default 8. Allowed: from 1 to 4096."""
    max_concurrent_groups: int | None = None
    """Most groups being collected at once. Default 8. Allowed: from 1 to 4096."""
    max_staleness: int | None = None
    """How many versions behind the trainer a sampled token may be: 0 collects strictly
    on-policy, 1 lets collection overlap one step of training. Default 0. Allowed: from 0 to
    64.
    """
    sampling: SamplingParams | None = None
    """How tokens are drawn."""
    episode: EpisodeSpec | None = None
    """Bounds of an episode."""
    group_order: GroupOrder | None = None
    """Which groups a step trains. Default `ready` above max_staleness 0, otherwise `fixed`,
    which is all that is allowed there.
    """
    dynamic_sampling: bool | None = None
    """Whether a group that cannot teach is replaced (DAPO's dynamic sampling, arXiv 2503.14476):
    one whose attempts all failed, or all got the same reward. It stays in the step's record
    and numbers, and one more is drawn, until groups_per_step of them can teach or
    max_attempted_groups is met. Default true with `ready`, false with `fixed`.
    """
    max_attempted_groups: int | None = None
    """Most groups that a step attempts; only with dynamic_sampling, and not fewer than
    groups_per_step. Then it trains with what it has. Default three times groups_per_step.
    Allowed: from 1 to 16384.
    """
    weight_update: WeightUpdate | None = None
    """What becomes of the generations that run when the pool exchanges weights. Default `drain`;
    `in_flight` only with a max_staleness above 0.
    """
    adaptive_concurrency: bool | None = None
    """Whether the queue of the pool's engines says how many groups are collected at once:
    groups_per_step at first, more while no request waits there and some have room, fewer
    while many wait, never more than max_concurrent_groups (additive increase, multiplicative
    decrease, as TCP does, RFC 5681). Only with `ready`, and a max_concurrent_groups above
    groups_per_step. Without it max_concurrent_groups is the bound at all times. Default
    false.
    """


class RubricSpec(Spec[spec_pb2.RubricSpec]):
    """What a judge model grades each attempt on, alone and not against the others. The score is
    the weighted mean of the criteria's, each in [0, 1].

    Args:
        criteria: The criteria. Required. Allowed: at most 32 items.
        base_url: Base URL of the only judge's API, as in JudgeModel; not with `judges`.
            Allowed: at most 1024 characters.
        model: The only judge's model name, as in JudgeModel; not with `judges`. Allowed: at
            most 256 characters.
        api_key_env: The only judge's key variable, as in JudgeModel; not with `judges`.
            Allowed: matches PODIUM_JUDGE_KEY[A-Z0-9_]*; at most 128 characters.
        judges: The judges, each of which grades every attempt, as in RulerSpec. Allowed: at
            most 16 items.
        fallbacks: Further judges, asked in order, one at a time, while fewer than `quorum`
            judges have graded the attempt. Allowed: at most 16 items.
        quorum: Judges that must have graded an attempt, or it has no score; 0 for more than
            half of `judges`. Default 0. Allowed: from 0 to 16.
        combination: How several grades of a criterion become one. Default `mean`.
        max_prompt_tokens: About how many tokens an attempt's prompt may have, as in
            RulerSpec. Allowed: from 512 to 4194304.
        max_job_tokens: Tokens that the job may have its judges read and write, as in
            RulerSpec. Default 0. Allowed: from 0 up.
        max_job_cost: The same in money, as in RulerSpec. Default 0. Allowed: from 0 up.
    """

    message_class = spec_pb2.RubricSpec

    criteria: Sequence[Criterion] | None = None
    """The criteria. Required. Allowed: at most 32 items."""
    base_url: str | None = None
    """Base URL of the only judge's API, as in JudgeModel; not with `judges`. Allowed: at most
    1024 characters.
    """
    model: str | None = None
    """The only judge's model name, as in JudgeModel; not with `judges`. Allowed: at most 256
    characters.
    """
    api_key_env: str | None = None
    """The only judge's key variable, as in JudgeModel; not with `judges`. Allowed: matches
    PODIUM_JUDGE_KEY[A-Z0-9_]*; at most 128 characters.
    """
    judges: Sequence[JudgeModel] | None = None
    """The judges, each of which grades every attempt, as in RulerSpec. Allowed: at most 16
    items.
    """
    fallbacks: Sequence[JudgeModel] | None = None
    """Further judges, asked in order, one at a time, while fewer than `quorum` judges have
    graded the attempt. Allowed: at most 16 items.
    """
    quorum: int | None = None
    """Judges that must have graded an attempt, or it has no score; 0 for more than half of
    `judges`. Default 0. Allowed: from 0 to 16.
    """
    combination: PanelCombination | None = None
    """How several grades of a criterion become one. Default `mean`."""
    max_prompt_tokens: int | None = None
    """About how many tokens an attempt's prompt may have, as in RulerSpec. Allowed: from 512 to
    4194304.
    """
    max_job_tokens: int | None = None
    """Tokens that the job may have its judges read and write, as in RulerSpec. Default 0.
    Allowed: from 0 up.
    """
    max_job_cost: float | None = None
    """The same in money, as in RulerSpec. Default 0. Allowed: from 0 up."""


class RulerSpec(Spec[spec_pb2.RulerSpec]):
    """The judges of a RULER scorer and what they are told.

    Args:
        base_url: Base URL of the only judge's API, as in JudgeModel; not with `judges`.
            Allowed: at most 1024 characters.
        model: The only judge's model name, as in JudgeModel; not with `judges`. Allowed: at
            most 256 characters.
        rubric: What good means; empty for the default rubric. Allowed: at most 32768
            characters.
        api_key_env: The only judge's key variable, as in JudgeModel; not with `judges`.
            Allowed: matches PODIUM_JUDGE_KEY[A-Z0-9_]*; at most 128 characters.
        judges: The judges, each of which scores every group; none for the one that base_url,
            model and api_key_env name. One that fails is left out. Allowed: at most 16 items.
        fallbacks: Further judges, asked in order, one at a time, while fewer than `quorum`
            judges have scored the group. Allowed: at most 16 items.
        quorum: Judges that must have scored a group, or it is skipped (`judge_failed`); 0 for
            more than half of `judges`. Default 0. Allowed: from 0 to 16.
        combination: How several scores become one. Default `mean`.
        max_prompt_tokens: About how many tokens a group's prompt may have, at 3 bytes a
            token; of longer attempts the middle is left out. Absent for the judge service's
            default. Allowed: from 512 to 4194304.
        max_job_tokens: Tokens that the job may have its judges read and write; a group whose
            questions could take more than is left is skipped (`judge_budget`) before anybody
            is asked. 0 for no bound but the judge service's. Default 0. Allowed: from 0 up.
        max_job_cost: The same in money, which needs prices for all judges; 0 for no bound.
            Default 0. Allowed: from 0 up.
        both_orders: Whether every judge is asked twice, the second time with the attempts in
            the reverse order, and the two scores averaged: what a judge gives for a place
            cancels, for twice the tokens. A judge that fails in one order has failed. Default
            false.
    """

    message_class = spec_pb2.RulerSpec

    base_url: str | None = None
    """Base URL of the only judge's API, as in JudgeModel; not with `judges`. Allowed: at most
    1024 characters.
    """
    model: str | None = None
    """The only judge's model name, as in JudgeModel; not with `judges`. Allowed: at most 256
    characters.
    """
    rubric: str | None = None
    """What good means; empty for the default rubric. Allowed: at most 32768 characters."""
    api_key_env: str | None = None
    """The only judge's key variable, as in JudgeModel; not with `judges`. Allowed: matches
    PODIUM_JUDGE_KEY[A-Z0-9_]*; at most 128 characters.
    """
    judges: Sequence[JudgeModel] | None = None
    """The judges, each of which scores every group; none for the one that base_url, model and
    api_key_env name. One that fails is left out. Allowed: at most 16 items.
    """
    fallbacks: Sequence[JudgeModel] | None = None
    """Further judges, asked in order, one at a time, while fewer than `quorum` judges have
    scored the group. Allowed: at most 16 items.
    """
    quorum: int | None = None
    """Judges that must have scored a group, or it is skipped (`judge_failed`); 0 for more than
    half of `judges`. Default 0. Allowed: from 0 to 16.
    """
    combination: PanelCombination | None = None
    """How several scores become one. Default `mean`."""
    max_prompt_tokens: int | None = None
    """About how many tokens a group's prompt may have, at 3 bytes a token; of longer attempts
    the middle is left out. Absent for the judge service's default. Allowed: from 512 to
    4194304.
    """
    max_job_tokens: int | None = None
    """Tokens that the job may have its judges read and write; a group whose questions could take
    more than is left is skipped (`judge_budget`) before anybody is asked. 0 for no bound but
    the judge service's. Default 0. Allowed: from 0 up.
    """
    max_job_cost: float | None = None
    """The same in money, which needs prices for all judges; 0 for no bound. Default 0. Allowed:
    from 0 up.
    """
    both_orders: bool | None = None
    """Whether every judge is asked twice, the second time with the attempts in the reverse
    order, and the two scores averaged: what a judge gives for a place cancels, for twice the
    tokens. A judge that fails in one order has failed. Default false.
    """


class SamplingParams(Spec[policy_pb2.SamplingParams]):
    """How tokens are drawn.

    Args:
        temperature: Softmax temperature; 0 is greedy. Default 1. Allowed: from 0 to 5.
        max_tokens: Most tokens to sample in one generation. Default 128. Allowed: from 1 to
            131072.
        stop: Strings that end the generation; the text before them is kept, and the sampled
            tokens that formed them stay in the token record. Allowed: at most 16 items.
        top_p: Nucleus probability. Default 1 (off). Values below 1 are refused for training
            rollouts, whose log-probs must be those of the full softmax. Allowed: above 0, up
            to 1.
        top_k: Top-k cut. Default 0 (off). Refused for training rollouts when above 0.
            Allowed: from 0 up.
        seed: Seed of this generation; absent for an unseeded draw.
        json_schema: JSON Schema that the text must satisfy (guided decoding). Refused for
            training rollouts, whose log-probs must be those of the full softmax. Allowed: at
            most 65536 characters.
    """

    message_class = policy_pb2.SamplingParams

    temperature: float | None = None
    """Softmax temperature; 0 is greedy. Default 1. Allowed: from 0 to 5."""
    max_tokens: int | None = None
    """Most tokens to sample in one generation. Default 128. Allowed: from 1 to 131072."""
    stop: Sequence[str] | None = None
    """Strings that end the generation; the text before them is kept, and the sampled tokens that
    formed them stay in the token record. Allowed: at most 16 items.
    """
    top_p: float | None = None
    """Nucleus probability. Default 1 (off). Values below 1 are refused for training rollouts,
    whose log-probs must be those of the full softmax. Allowed: above 0, up to 1.
    """
    top_k: int | None = None
    """Top-k cut. Default 0 (off). Refused for training rollouts when above 0. Allowed: from 0
    up.
    """
    seed: int | None = None
    """Seed of this generation; absent for an unseeded draw."""
    json_schema: str | None = None
    """JSON Schema that the text must satisfy (guided decoding). Refused for training rollouts,
    whose log-probs must be those of the full softmax. Allowed: at most 65536 characters.
    """


class Scorer(Spec[spec_pb2.Scorer]):
    """One scorer and its share of the reward.

    Args:
        kind: Who scores. Required.
        weight: Its factor in the sum. Default 1. Allowed: from 0 to 1000.
        weighted: For `weighted`.
        ruler: For `ruler`.
        rubric: For `rubric`.
        http: For `http`.
    """

    message_class = spec_pb2.Scorer

    kind: ScorerKind | None = None
    """Who scores. Required."""
    weight: float | None = None
    """Its factor in the sum. Default 1. Allowed: from 0 to 1000."""
    weighted: WeightedCriteria | None = None
    """For `weighted`."""
    ruler: RulerSpec | None = None
    """For `ruler`."""
    rubric: RubricSpec | None = None
    """For `rubric`."""
    http: HttpScorerSpec | None = None
    """For `http`."""


class SftSpec(Spec[spec_pb2.SftSpec]):
    """Supervised fine-tuning (SFT) on conversations. `podium sft` and train_sft of the SDK read
    the rows, and send them in this order.

    Args:
        epochs: Passes over the rows. Default 1. Allowed: from 1 to 10000.
        batch_size: Rows of a step; the last of an epoch may have fewer. Default 8. Allowed:
            from 1 to 4096.
        validate_every_steps: Steps between two measurements of the loss on held-out rows,
            where there are any; the first step and the last are always measured. 0 for only
            those two. Default 10. Allowed: from 0 to 1000000.
        shuffle: Whether each epoch has an order of its own, from the job's seed. Default
            true.
        rows: How many rows there are. The client says it, as it does the next two. Allowed:
            from 1 up.
        heldout_rows: How many rows are held out. Allowed: from 0 up.
        data_digest: Digest of all rows as tokens, by which a client that goes on with the job
            knows that it has the same: `sha256:…`. Allowed: matches sha256:[0-9a-f]{64}; at
            most 71 characters.
    """

    message_class = spec_pb2.SftSpec

    epochs: int | None = None
    """Passes over the rows. Default 1. Allowed: from 1 to 10000."""
    batch_size: int | None = None
    """Rows of a step; the last of an epoch may have fewer. Default 8. Allowed: from 1 to 4096."""
    validate_every_steps: int | None = None
    """Steps between two measurements of the loss on held-out rows, where there are any; the
    first step and the last are always measured. 0 for only those two. Default 10. Allowed:
    from 0 to 1000000.
    """
    shuffle: bool | None = None
    """Whether each epoch has an order of its own, from the job's seed. Default true."""
    rows: int | None = None
    """How many rows there are. The client says it, as it does the next two. Allowed: from 1 up."""
    heldout_rows: int | None = None
    """How many rows are held out. Allowed: from 0 up."""
    data_digest: str | None = None
    """Digest of all rows as tokens, by which a client that goes on with the job knows that it
    has the same: `sha256:…`. Allowed: matches sha256:[0-9a-f]{64}; at most 71 characters.
    """


class TrackingSpec(Spec[spec_pb2.TrackingSpec]):
    """Which trackers a job is told to. Credentials, and where a tracker is, stand in secrets of
    the tracking service: a job names one, and none holds a key.

    Args:
        wandb: Weights & Biases: a run by step, tables of episodes and actions, checkpoints as
            artifacts; absent for none.
        langfuse: Langfuse: a trace for each episode; absent for none.
        mlflow: MLflow: a run by step; absent for none.
        openpipe: OpenPipe: a report of each completion, with its reward; absent for none.
    """

    message_class = spec_pb2.TrackingSpec

    wandb: WandbSpec | None = None
    """Weights & Biases: a run by step, tables of episodes and actions, checkpoints as artifacts;
    absent for none.
    """
    langfuse: LangfuseSpec | None = None
    """Langfuse: a trace for each episode; absent for none."""
    mlflow: MlflowSpec | None = None
    """MLflow: a run by step; absent for none."""
    openpipe: OpenPipeSpec | None = None
    """OpenPipe: a report of each completion, with its reward; absent for none."""


class TrainerSpec(Spec[spec_pb2.TrainerSpec]):
    """Where a job's trainer runs. What is left out is as the installation has it.

    Args:
        nodes: Pods that train together; each goes where there is room for it. Default 1.
            Allowed: from 1 to 1024.
        gpus_per_node: GPUs of each pod, and its processes. Absent for the installation's own.
            Allowed: from 1 to 64.
        queue: Kueue's LocalQueue that says when the pods may start; empty for none. Allowed:
            matches [a-z0-9]([-.a-z0-9]*[a-z0-9])?; at most 63 characters.
        priority_class: PriorityClass of the pods; empty for the installation's own. Allowed:
            matches [a-z0-9]([-.a-z0-9]*[a-z0-9])?; at most 253 characters.
        pool: The trainer pool that it trains at, beside other jobs. Which there are is the
            installation's to say. Only for `lora` without `experts`; not with `dedicated`,
            nor with `nodes`, `gpus_per_node`, `queue` or `priority_class`, which are of a
            trainer of its own. Empty: of the pools for the job's base model the emptiest,
            where there is one and the job is such a job; else a trainer of its own. Allowed:
            matches [a-z0-9]([-a-z0-9]*[a-z0-9])?; at most 63 characters.
        dedicated: Whether it has a trainer of its own although there are trainer pools.
            Default false.
    """

    message_class = spec_pb2.TrainerSpec

    nodes: int | None = None
    """Pods that train together; each goes where there is room for it. Default 1. Allowed: from 1
    to 1024.
    """
    gpus_per_node: int | None = None
    """GPUs of each pod, and its processes. Absent for the installation's own. Allowed: from 1 to
    64.
    """
    queue: str | None = None
    """Kueue's LocalQueue that says when the pods may start; empty for none. Allowed: matches
    [a-z0-9]([-.a-z0-9]*[a-z0-9])?; at most 63 characters.
    """
    priority_class: str | None = None
    """PriorityClass of the pods; empty for the installation's own. Allowed: matches
    [a-z0-9]([-.a-z0-9]*[a-z0-9])?; at most 253 characters.
    """
    pool: str | None = None
    """The trainer pool that it trains at, beside other jobs. Which there are is the
    installation's to say. Only for `lora` without `experts`; not with `dedicated`, nor with
    `nodes`, `gpus_per_node`, `queue` or `priority_class`, which are of a trainer of its own.
    Empty: of the pools for the job's base model the emptiest, where there is one and the job
    is such a job; else a trainer of its own. Allowed: matches [a-z0-9]([-a-z0-9]*[a-z0-9])?;
    at most 63 characters.
    """
    dedicated: bool | None = None
    """Whether it has a trainer of its own although there are trainer pools. Default false."""


class TrainingSpec(Spec[spec_pb2.TrainingSpec]):
    """How the model learns.

    Args:
        steps: Optimizer steps. Each takes a batch of groups and makes a version, in
            `mini_batches` times `epochs` updates. Required. Allowed: from 1 to 1000000.
        learning_rate: AdamW learning rate after the warm-up. Default 1e-5. Allowed: above 0,
            up to 1.
        warmup_steps: Steps over which the learning rate rises linearly from 0. All updates of
            a step have its rate. Default 0. Allowed: from 0 to 1000000.
        weight_decay: AdamW weight decay. Default 0. Allowed: from 0 to 1.
        adam_beta1: AdamW beta 1. Default 0.9. Allowed: from 0, below 1.
        adam_beta2: AdamW beta 2. Default 0.99. Allowed: from 0, below 1.
        max_grad_norm: Greatest norm of the gradient. Default 1. Allowed: above 0, up to
            1000000.
        lora: The adapter; only for `lora`.
        loss: The objective.
        dtype: Compute type. Default `bfloat16`.
        max_row_tokens: Most tokens of one packed row, and so of an attempt that trains: a
            longer one leaves the loss, which is counted and told. The trainer's memory grows
            with the longest row. Default the context window of the pool that serves the job,
            or 4096 where that is less; the job holds the number from then on. Allowed: from
            16 to 1048576.
        trainable: What trains. Default `lora`.
        schedule: How the learning rate goes on. Default `constant`.
        gradient_checkpointing: Whether a block's activations are computed again in the
            backward pass instead of kept: less memory, about a third more work. Changes no
            result. Default false.
        mini_batches: Parts that a step's groups are drawn into, each an update of the
            optimizer with a loss of its own; fewer when fewer groups train. Ratios are
            against the same old policy in all of them. Times `epochs` at most 64. Default 1.
            Allowed: from 1 to 64.
        epochs: How many times a step goes over its groups, each time with the parts in
            another order. Default 1. Allowed: from 1 to 64.
    """

    message_class = spec_pb2.TrainingSpec

    steps: int | None = None
    """Optimizer steps. Each takes a batch of groups and makes a version, in `mini_batches` times
    `epochs` updates. Required. Allowed: from 1 to 1000000.
    """
    learning_rate: float | None = None
    """AdamW learning rate after the warm-up. Default 1e-5. Allowed: above 0, up to 1."""
    warmup_steps: int | None = None
    """Steps over which the learning rate rises linearly from 0. All updates of a step have its
    rate. Default 0. Allowed: from 0 to 1000000.
    """
    weight_decay: float | None = None
    """AdamW weight decay. Default 0. Allowed: from 0 to 1."""
    adam_beta1: float | None = None
    """AdamW beta 1. Default 0.9. Allowed: from 0, below 1."""
    adam_beta2: float | None = None
    """AdamW beta 2. Default 0.99. Allowed: from 0, below 1."""
    max_grad_norm: float | None = None
    """Greatest norm of the gradient. Default 1. Allowed: above 0, up to 1000000."""
    lora: LoraSpec | None = None
    """The adapter; only for `lora`."""
    loss: LossSpec | None = None
    """The objective."""
    dtype: ComputeDtype | None = None
    """Compute type. Default `bfloat16`."""
    max_row_tokens: int | None = None
    """Most tokens of one packed row, and so of an attempt that trains: a longer one leaves the
    loss, which is counted and told. The trainer's memory grows with the longest row. Default
    the context window of the pool that serves the job, or 4096 where that is less; the job
    holds the number from then on. Allowed: from 16 to 1048576.
    """
    trainable: TrainableKind | None = None
    """What trains. Default `lora`."""
    schedule: Schedule | None = None
    """How the learning rate goes on. Default `constant`."""
    gradient_checkpointing: bool | None = None
    """Whether a block's activations are computed again in the backward pass instead of kept:
    less memory, about a third more work. Changes no result. Default false.
    """
    mini_batches: int | None = None
    """Parts that a step's groups are drawn into, each an update of the optimizer with a loss of
    its own; fewer when fewer groups train. Ratios are against the same old policy in all of
    them. Times `epochs` at most 64. Default 1. Allowed: from 1 to 64.
    """
    epochs: int | None = None
    """How many times a step goes over its groups, each time with the parts in another order.
    Default 1. Allowed: from 1 to 64.
    """


class WandbSpec(Spec[spec_pb2.WandbSpec]):
    """A run of Weights & Biases; its id is the job's.

    Args:
        project: The project. Default `podium`. Allowed: at most 128 characters.
        entity: The team or user; empty for the key's own. Allowed: at most 128 characters.
        name: The run's name; empty for the job's id and the time of its creation. Allowed: at
            most 128 characters.
        tags: Tags besides `ART`, `GRPO` and the base model. Allowed: at most 32 items.
        notes: Notes; empty for a line that names the environment. Allowed: at most 4096
            characters.
        mode: Whether it goes to the server. Default `online`.
        secret: Secret of the tracking service, with `WANDB_API_KEY`; empty for the service's
            own variables. Allowed: matches [a-z0-9]([-a-z0-9]*[a-z0-9])?; at most 63
            characters.
        artifact_every_steps: Steps between two artifacts `model_epoch_STEP`, each a reference
            to a checkpoint; 0 for none. Default 10. Allowed: from 0 to 1000000.
    """

    message_class = spec_pb2.WandbSpec

    project: str | None = None
    """The project. Default `podium`. Allowed: at most 128 characters."""
    entity: str | None = None
    """The team or user; empty for the key's own. Allowed: at most 128 characters."""
    name: str | None = None
    """The run's name; empty for the job's id and the time of its creation. Allowed: at most 128
    characters.
    """
    tags: Sequence[str] | None = None
    """Tags besides `ART`, `GRPO` and the base model. Allowed: at most 32 items."""
    notes: str | None = None
    """Notes; empty for a line that names the environment. Allowed: at most 4096 characters."""
    mode: WandbMode | None = None
    """Whether it goes to the server. Default `online`."""
    secret: str | None = None
    """Secret of the tracking service, with `WANDB_API_KEY`; empty for the service's own
    variables. Allowed: matches [a-z0-9]([-a-z0-9]*[a-z0-9])?; at most 63 characters.
    """
    artifact_every_steps: int | None = None
    """Steps between two artifacts `model_epoch_STEP`, each a reference to a checkpoint; 0 for
    none. Default 10. Allowed: from 0 to 1000000.
    """


class WeightedCriteria(Spec[spec_pb2.WeightedCriteria]):
    """The weighted criteria and their parameters.

    Args:
        accuracy: Weight of task accuracy. Default 0.4; the four sum to 1. Allowed: from 0 to
            1.
        efficiency: Weight of efficiency. Default 0.3. Allowed: from 0 to 1.
        completeness: Weight of completeness. Default 0.2. Allowed: from 0 to 1.
        satisfaction: Weight of user satisfaction. Default 0.1. Allowed: from 0 to 1.
        task_type: Which accuracy scorer: `general`, `email_search`, `code_generation` or
            `question_answering`. Default `general`. Allowed: at most 64 characters.
        optimal_actions: Actions that an efficient attempt needs. Default 5. Allowed: from 0
            up.
    """

    message_class = spec_pb2.WeightedCriteria

    accuracy: float | None = None
    """Weight of task accuracy. Default 0.4; the four sum to 1. Allowed: from 0 to 1."""
    efficiency: float | None = None
    """Weight of efficiency. Default 0.3. Allowed: from 0 to 1."""
    completeness: float | None = None
    """Weight of completeness. Default 0.2. Allowed: from 0 to 1."""
    satisfaction: float | None = None
    """Weight of user satisfaction. Default 0.1. Allowed: from 0 to 1."""
    task_type: str | None = None
    """Which accuracy scorer: `general`, `email_search`, `code_generation` or
    `question_answering`. Default `general`. Allowed: at most 64 characters.
    """
    optimal_actions: int | None = None
    """Actions that an efficient attempt needs. Default 5. Allowed: from 0 up."""


class WeightedEnvironment(Spec[spec_pb2.WeightedEnvironment]):
    """One of a job's several environments.

    Args:
        environment: The task; without `image`. Required.
        weight: Its share of a step's groups is its weight by the sum of the weights of those
            that take part in the step; what is left of a share goes by turns, from the job's
            seed. Default 1. Allowed: above 0, up to 1000000.
        name: Its name in metrics and trajectories, which no other has; empty for the
            environment's own. Allowed: matches [A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?; at
            most 64 characters.
        from_step: First step that it takes part in. Default 1. Allowed: from 1 to 1000000.
        to_step: Last step that it takes part in; absent for the job's last. Allowed: from 1
            to 1000000.
    """

    message_class = spec_pb2.WeightedEnvironment

    environment: EnvironmentSpec | None = None
    """The task; without `image`. Required."""
    weight: float | None = None
    """Its share of a step's groups is its weight by the sum of the weights of those that take
    part in the step; what is left of a share goes by turns, from the job's seed. Default 1.
    Allowed: above 0, up to 1000000.
    """
    name: str | None = None
    """Its name in metrics and trajectories, which no other has; empty for the environment's own.
    Allowed: matches [A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?; at most 64 characters.
    """
    from_step: int | None = None
    """First step that it takes part in. Default 1. Allowed: from 1 to 1000000."""
    to_step: int | None = None
    """Last step that it takes part in; absent for the job's last. Allowed: from 1 to 1000000."""
