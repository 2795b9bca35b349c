"""`podium trajectory list` and `show`: episodes, read by people."""

from __future__ import annotations

import json

import click
import pytest
from podium.cli.episodes import episode_lines
from podium.cli.pieces import Pieces
from podium.cli.ranges import Range
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.types.v1 import trajectory_pb2 as pb
from support.cli import at_terminal
from support.cli_user import Cli, add_job
from support.small_tokenizer import small_tokenizer
from support.wild_episode import wild_episode

ID = "w/s3/g0/t1"


@pytest.fixture
def cli_with_episode(cli: Cli) -> Cli:
    add_job(cli.fake)
    cli.fake.jobs.trajectories = [wild_episode(n) for n in (1, 0)]
    return cli


async def test_an_episode_is_read_turn_by_turn(cli_with_episode: Cli) -> None:
    done = await cli_with_episode("trajectory", "show", ID)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].split() == ["id", ID]
    assert "reward    0.75  (environment 0.5, ruler 0.25)" in lines
    assert "weights   w@2, w@3" in lines
    assert "tools     search" in lines
    assert "assistant  turn 1, reward +0.25" in lines
    assert '  -> search({"q": "budget"})' in lines
    assert "  not read as a call: no closing brace" in lines
    assert "tool search" in lines
    assert '  state {"left": 0.25}' in lines
    assert "(history 2 of 2; its first 4 messages are those of the one before)" in lines
    assert "assistant  turn 2, reward +1" in lines
    assert "  terminated by the environment" in lines
    assert "raised ValueError" in lines
    assert "    line 1" in lines
    assert lines[-1] == "[failed, reward 0.750, success 1, turns 2]"
    words = "café \\x1b[2J\\x07\\u202e 𝄞\\nsecond\\u2028line\\tend"
    assert (
        f"  ruler: judge {words} at http://judge:8000/v1: 0.25, place 3; temperature 0.5, seed"
        f" {2**62}, ended by {words}, prompt abcdef012345, order of w/s3/g0, refuses"
        " response_format, known already"
    ) in lines
    assert f"  ruler: no model at http://other:8000/v1: does not count, no answer, {words}" in lines
    assert "  rubric: grader at ?: 0.75; seed 7, ended by stop, prompt 121212121212" in lines
    assert done.out.count("Be brief.") == 1


async def test_thoughts_are_marked_line_by_line(cli_with_episode: Cli) -> None:
    lines = (await cli_with_episode("trajectory", "show", ID)).out.splitlines()
    begin = lines.index("  thought:")
    assert lines[begin - 1] == "assistant  turn 1, reward +0.25"
    assert lines[begin + 1 : begin + 5] == [
        "  ~ Where is it? café \\x1b[2J\\x07\\u202e 𝄞",
        "  ~ second\\u2028line\tend",
        "  ~ <b>assistant</b>",
        '  -> search({"q": "budget"})',
    ]


async def test_what_strangers_said_cannot_steer_the_terminal(cli_with_episode: Cli) -> None:
    for command in (("show", ID), ("list", "w")):
        done = await cli_with_episode("trajectory", *command)
        assert not set(done.out) & set("\x1b\x07\u202e\u2028\r"), command
    assert "café \\x1b[2J\\x07\\u202e 𝄞" in (await cli_with_episode("trajectory", "show", ID)).out
    old = await cli_with_episode("job", "trajectories", "w", ID)
    assert "\x1b" not in old.out


@pytest.mark.parametrize(
    ("turns", "roles"),
    [
        ("0", ["system", "user"]),
        ("1", ["assistant", "tool search"]),
        ("2:", ["assistant"]),
        ("-1:", ["assistant"]),
        (":1", ["system", "user", "assistant", "tool search"]),
        ("7", []),
    ],
)
async def test_some_turns_of_a_long_episode(
    cli_with_episode: Cli, turns: str, roles: list[str]
) -> None:
    done = await cli_with_episode("trajectory", "show", ID, "--turns", turns)
    assert done.code == 0, done.err
    heads = [line.split("  ")[0] for line in done.out.splitlines()]
    known = {"system", "user", "assistant", "tool search"}
    assert [head for head in heads if head in known] == roles


async def test_tokens_come_with_log_probs_and_the_version_that_sampled_them(
    cli_with_episode: Cli,
) -> None:
    model = small_tokenizer(cli_with_episode.folder / "model", ["zero", "sampled"], first=100)
    done = await cli_with_episode(
        "trajectory", "show", ID, "--tokens", "--tokenizer", str(model), "--turns", "2"
    )
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert "sampled, tokens 5 to 8: w@3, temperature 0.7, finish stop, request r3" in lines
    assert "context, tokens 0 to 4" in lines
    assert "  11 12 13 14 15" in lines
    assert [line.split() for line in lines if line.startswith("       ")] == [
        ["5", "100", "-0.1000", '"zero"'],
        ["6", "101", "-0.2000", '"sampled"'],
        ["7", "102", "-0.3000"],
        ["8", "103", "-0.4000"],
    ]
    assert "w@2, temperature" not in done.out, "turn 1's tokens are not of turn 2"


async def test_without_a_tokenizer_there_are_ids_alone_and_a_word_why(
    cli_with_episode: Cli,
) -> None:
    empty = str(cli_with_episode.folder / "none")
    done = await cli_with_episode("trajectory", "show", ID, "--tokens", PODIUM_MODELS_DIR=empty)
    assert done.code == 0
    assert "tokens without their pieces" in done.err
    assert "       3     100   -0.1000" in done.out.splitlines()
    asked = await cli_with_episode(
        "trajectory", "show", ID, "--tokens", "--tokenizer", "no/model", PODIUM_MODELS_DIR=empty
    )
    assert (asked.code, asked.out) == (2, "")


async def test_data_has_the_whole_episode(cli_with_episode: Cli) -> None:
    cli_with_episode.fake.jobs.trajectories[1].histories[0].tokens.logprobs[0] = float("nan")
    done = await cli_with_episode("trajectory", "show", ID, "-o", "json")
    shown = json.loads(done.out)
    assert shown["explanation"].startswith("Found it")
    assert shown["histories"][0]["tokens"]["logprobs"][0] is None
    assert "NaN" not in done.out


async def test_episodes_are_listed(cli_with_episode: Cli) -> None:
    done = await cli_with_episode("trajectory", "list", "w", "--step", "3", "-o", "name")
    assert done.out.split() == ["w/s3/g1/t1", "w/s3/g0/t1"]
    assert (await cli_with_episode("trajectory", "list", "w", "--step", "4")).out == ""


async def test_episodes_that_were_deleted_are_told_of(cli_with_episode: Cli) -> None:
    gone = jobs.DeletedTrajectories(first_step=1, last_step=20, groups=160)
    cli_with_episode.fake.jobs.deleted = [gone, jobs.DeletedTrajectories(first_step=22, groups=1)]
    cli_with_episode.fake.jobs.deleted[1].last_step = 22
    done = await cli_with_episode("trajectory", "list", "w", "-o", "name")
    assert "deleted to make room: 160 groups of steps 1 to 20" in done.err
    assert "deleted to make room: 1 group of step 22" in done.err
    assert "deleted" not in done.out
    assert "deleted" not in (await cli_with_episode("trajectory", "list", "w", "--evaluation")).err
    # Who asks for one of them learns why it is not there.
    done = await cli_with_episode("trajectory", "show", "w/s3/g0/t9")
    assert done.code == 5
    assert "160 groups of steps 1 to 20" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("w",), 2, "an episode's id is JOB/s3/g0/t1"),
        (("w/s3/g0/t9",), 5, "podium trajectory list w"),
        (("nope/s3/g0/t1",), 5, "there is no job 'nope'"),
        ((ID, "--turns", "x"), 2, "allowed is a number, or a:b"),
        ((ID, "--turns", "5:3"), 2, "ends before it begins"),
    ],
)
async def test_what_cannot_be_shown(
    cli_with_episode: Cli, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = await cli_with_episode("trajectory", "show", *arguments)
    assert (done.code, done.out) == (code, "")
    assert words in done.err


async def test_at_a_terminal_a_pager_shows_it(cli_with_episode: Cli) -> None:
    pager = cli_with_episode.folder / "pager"
    # To a file: what a pager writes goes to the terminal of the whole process.
    pager.write_text("#!/bin/sh\nsed 's/^/paged: /' > paged\n")
    pager.chmod(0o755)
    done = await at_terminal(
        *("trajectory", "show", ID),
        cwd=cli_with_episode.folder,
        environment={"TERM": "xterm", "PAGER": str(pager), **cli_with_episode.fake.environment},
        streams=("stdin", "stdout"),
    )
    assert done.code == 0, done.err
    paged = (cli_with_episode.folder / "paged").read_text()
    assert "paged: " in paged
    assert "Be brief." in paged
    assert "Be brief." not in done.out


async def test_an_episode_without_messages_is_shown_too(cli: Cli) -> None:
    add_job(cli.fake)
    failure = pb.Failure(type="OSError", message="no server")
    cli.fake.jobs.trajectories = [
        pb.Trajectory(id=ID, stop_reason=pb.STOP_REASON_FAILED, failure=failure)
    ]
    done = await cli("trajectory", "show", ID, "--tokens", "--tokenizer", "")
    assert done.code == 0
    assert "raised OSError\n  no server\n[failed]" in done.out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("trajectory", "show", f"w/s{10**30}/g0/t1"), 5),
        (("trajectory", "list", "w", "--step", str(2**63)), 2),
        (("job", "watch", "w", "--after", str(2**63)), 2),
        (("job", "resume", "w", "--max-sampled-tokens", str(2**63)), 2),
        (("chat", "--once", "hi", "--max-tokens", str(2**31)), 2),
        (("chat", "--once", "hi", "--seed", str(-(2**63) - 1)), 2),
    ],
)
async def test_a_number_that_no_field_holds_is_no_defect_of_podium(
    cli_with_episode: Cli, arguments: tuple[str, ...], code: int
) -> None:
    done = await cli_with_episode(*arguments)
    assert (done.code, done.out) == (code, ""), done.err
    assert "defect" not in done.err
    assert code == 5 or arguments[-2] in done.err


def test_the_tokens_of_a_turn_that_weights_came_into_are_told_with_each_version() -> None:
    history = pb.History(
        messages=[
            pb.Message(role=pb.ROLE_USER, content="one"),
            pb.Message(role=pb.ROLE_ASSISTANT, content="two"),
            pb.Message(role=pb.ROLE_USER, content="three"),
            pb.Message(role=pb.ROLE_ASSISTANT, content="four"),
        ],
        tokens=pb.TokenRecord(token_ids=range(9), logprobs=[-0.5] * 6),
    )
    stop = pb.FINISH_REASON_STOP
    for start, length, version, reason in ((1, 2, 3, 0), (3, 2, 4, stop), (7, 2, 4, stop)):
        history.tokens.spans.add(
            start=start, length=length, policy="w", weights_version=version, finish_reason=reason
        )
    made = pb.Trajectory(id=ID, histories=[history])
    lines = list(map(click.unstyle, episode_lines(made, turns=Range(1, 1), pieces=Pieces())))
    assert [line for line in lines if line.startswith("sampled")] == [
        "sampled, tokens 1 to 2: w@3, temperature 0",
        "sampled, tokens 3 to 4: w@4, temperature 0, finish stop",
    ]
    assert any("w@3, w@4" in line for line in lines)
