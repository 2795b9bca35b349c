"""What a synchronous client does in a process that was forked from its own."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

from podium.core.errors import FailedPreconditionError
from podium.sdk import Client
from podium.sdk.connection.addresses import THIS_MACHINE


def ask(client: Client, told: Connection) -> None:
    try:
        client.jobs.get("job")
    except FailedPreconditionError as error:
        told.send((error.reason, error.message))
    client.close()
    told.send("closed")


def test_a_client_that_was_opened_before_a_fork_says_so_and_does_not_hang() -> None:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    with Client(THIS_MACHINE) as client:
        child = context.Process(target=ask, args=(client, there))
        child.start()
        child.join(60)
        if child.is_alive():
            child.kill()
            child.join()
    assert child.exitcode == 0
    reason, message = here.recv()
    assert (reason, here.recv()) == ("FORKED", "closed")
    assert "open one in each process" in message
