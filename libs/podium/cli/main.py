"""Entry point of the `podium` command."""

from __future__ import annotations

import os
import sys

import click

import podium
from podium.cli.exits import Exit, colour_choice, debugging, show
from podium.cli.lazy import LazyGroup
from podium.core.proxies import keep_direct

_EPILOG = """\b
Exit codes: 0 done, 1 failed job or other, 2 usage or invalid file,
3 unreachable, 4 not allowed, 5 not found or conflict, 124 wait timed out,
130 interrupted. Data goes to stdout, everything else to stderr.

Environment: PODIUM_ADDRESS, PODIUM_TOKEN, PODIUM_CONTEXT, PODIUM_DATA_DIR,
PODIUM_CONFIG_DIR, NO_COLOR, PODIUM_DEBUG=1.

Completion of commands, options and jobs: eval "$(podium completion bash)", or
zsh, in the shell's startup file.
"""


@click.version_option(podium.__version__, prog_name="podium")
@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
    lazy={
        "init": ("podium.cli.init:init", "Make a folder with a task of your own."),
        "train": ("podium.cli.train:train", "Train on a task of your own, on this machine."),
        "up": ("podium.cli.stack:up", "Run the services on this machine."),
        "down": ("podium.cli.running:down", "Stop what 'up' runs."),
        "status": ("podium.cli.running:status", "Show what 'up' runs."),
        "login": ("podium.cli.login:login", "Save an installation to work with."),
        "context": ("podium.cli.context:context", "List, choose and delete saved installations."),
        "install": (
            "podium.cli.install.command:install",
            "Check a cluster, and say how to install there.",
        ),
        "job": ("podium.cli.job:job", "Submit, watch and steer training jobs."),
        "sft": ("podium.cli.sft:sft", "Fine-tune on conversations."),
        "trajectory": (
            "podium.cli.trajectory:trajectory",
            "List, read and export a job's episodes.",
        ),
        "usage": ("podium.cli.usage:usage", "Show what jobs and projects have used."),
        "checkpoint": (
            "podium.cli.checkpoint:checkpoint",
            "List, export, push and load trained versions.",
        ),
        "chat": ("podium.cli.chat:chat", "Talk to a policy."),
        "eval": (
            "podium.cli.evaluation:evaluation",
            "Measure a policy, a baseline or another model.",
        ),
        "env": ("podium.cli.environment:env", "List, check and serve environments to train on."),
        "scorer": ("podium.cli.scorer:scorer", "Serve a function that scores a job's episodes."),
        "scenarios": (
            "podium.cli.scenarios:scenarios",
            "Make and check files of scenarios.",
        ),
        "doctor": ("podium.cli.doctor:doctor", "Find out what is wrong, and what to do."),
        "completion": (
            "podium.cli.completion:completion",
            "Print a script that completes commands in a shell.",
        ),
        "version": ("podium.cli.version:version", "Show versions."),
    },
)
def cli() -> None:
    """Train LLM agents with reinforcement learning."""


def main() -> None:
    """Runs the command and exits with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs the command and returns its exit code."""
    keep_direct()
    try:
        result = cli.main(
            arguments, prog_name="podium", standalone_mode=False, color=colour_choice()
        )
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except SystemExit as stop:
        # Click ends so when a shell asks what to complete.
        return int(stop.code or 0)
    except BrokenPipeError:
        # Whoever read has enough, as `head` does; what is still buffered goes nowhere.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 : the process ends
        return Exit.FAILED
    except Exception as error:
        if debugging():
            import traceback

            traceback.print_exc()
        return show(error)
    return result if isinstance(result, int) else Exit.OK
