"""A stream of a header and groups: the order, and what is checked when."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError
from podium.jobs.v1 import session_service_pb2 as pb
from podium.kit.rpc.streams import header_and_groups
from podium.types.v1 import trajectory_pb2

HEADER = pb.SubmitBatchRequest(header=pb.BatchHeader(job_id="a"))
# With no field set, which must still count as the header.
EMPTY_HEADER = pb.SubmitBatchRequest(header=pb.BatchHeader())
GROUP = pb.SubmitBatchRequest(group=trajectory_pb2.Group(id="g"))
NOTHING = pb.SubmitBatchRequest()


async def stream(*requests: pb.SubmitBatchRequest) -> AsyncIterator[pb.SubmitBatchRequest]:
    for request in requests:
        yield request


@pytest.mark.parametrize("first", [HEADER, EMPTY_HEADER])
@pytest.mark.parametrize("count", [0, 1, 3])
async def test_the_header_and_then_the_groups(first: pb.SubmitBatchRequest, count: int) -> None:
    header, groups = await header_and_groups(stream(first, *[GROUP] * count))
    assert header == first.header
    assert groups == [GROUP.group] * count


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([], "got an empty stream; allowed is the header first, then groups"),
        ([GROUP], "got group; allowed is the header first"),
        ([NOTHING], "got nothing; allowed is the header first"),
        ([HEADER, HEADER], "got header; allowed is a group"),
        ([EMPTY_HEADER, NOTHING], "got nothing; allowed is a group"),
        ([HEADER, GROUP, HEADER], "got header; allowed is a group"),
    ],
)
async def test_any_other_order_is_refused(
    requests: list[pb.SubmitBatchRequest], message: str
) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        await header_and_groups(stream(*requests))
    (violation,) = refused.value.violations
    assert (violation.field, violation.description) == ("item", message)


async def test_a_header_that_fails_its_check_is_refused_before_a_group_is_awaited() -> None:
    async def no_group() -> AsyncIterator[pb.SubmitBatchRequest]:
        yield HEADER
        pytest.fail("a group was awaited")

    def check(header: pb.BatchHeader) -> None:
        raise FailedPreconditionError(f"no job {header.job_id}")

    with pytest.raises(FailedPreconditionError, match="no job a"):
        await header_and_groups(no_group(), check)
