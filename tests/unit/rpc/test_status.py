"""The one table, and details on the wire: total both ways, lossless, and never too big."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from podium.core import errors
from podium.core.errors import InvalidArgumentError, PodiumError, Violation
from podium.kit.rpc.details import KEY, decode, encode
from podium.kit.rpc.errors import from_rpc, rpc_errors
from podium.kit.rpc.status import CODES, code_of, exception_of


def _tree(kind: type[PodiumError]) -> Iterator[type[PodiumError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _tree(child)


KINDS = sorted(
    {kind for kind in _tree(PodiumError) if kind.__module__ == errors.__name__},
    key=lambda kind: kind.__name__,
)


def wire(error: PodiumError) -> grpc.aio.AioRpcError:
    code, message, metadata = encode(error)
    return grpc.aio.AioRpcError(
        code, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), details=message
    )


def test_every_exception_has_one_code_and_every_code_one_exception() -> None:
    assert set(CODES) == set(KINDS)
    assert len(set(CODES.values())) == len(CODES)
    for code in grpc.StatusCode:
        if code is grpc.StatusCode.OK:
            continue
        kind = exception_of(code)
        if code is not grpc.StatusCode.UNKNOWN:
            assert CODES[kind] is code
    with pytest.raises(KeyError):
        exception_of(grpc.StatusCode.OK)


def test_a_services_own_subclass_has_its_parents_code() -> None:
    class LeaseLostError(errors.AbortedError):
        """A test's own."""

    assert code_of(LeaseLostError("x")) is grpc.StatusCode.ABORTED
    assert code_of(PodiumError("x")) is grpc.StatusCode.INTERNAL


@pytest.mark.parametrize("kind", KINDS)
def test_reason_and_metadata_survive_the_wire(kind: type[PodiumError]) -> None:
    sent = kind("it did not work", reason="SOME_REASON", metadata={"offset": "5"})
    with pytest.raises(kind) as caught, rpc_errors("registry"):
        raise wire(sent)
    assert type(caught.value) is kind
    assert "it did not work" in caught.value.message
    assert caught.value.reason == "SOME_REASON"
    assert caught.value.metadata["offset"] == "5"


def test_violations_survive_the_wire() -> None:
    sent = InvalidArgumentError(violations=[Violation("a.b", "got 1"), Violation("c[2]", "bad")])
    with pytest.raises(InvalidArgumentError) as caught, rpc_errors("registry"):
        raise wire(sent)
    assert caught.value.violations == sent.violations
    assert caught.value.message == "a.b: got 1; c[2]: bad"


def test_unavailable_names_the_peer() -> None:
    with pytest.raises(errors.UnavailableError) as caught, rpc_errors("registry"):
        raise wire(errors.UnavailableError("no disk"))
    assert str(caught.value) == caught.value.message == "registry is unavailable: no disk"
    assert isinstance(caught.value.__cause__, grpc.aio.AioRpcError)


@pytest.mark.parametrize("code", [c for c in grpc.StatusCode if c is not grpc.StatusCode.OK])
def test_a_status_without_details_is_mapped_by_its_code_alone(code: grpc.StatusCode) -> None:
    bare = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details="words")
    found = from_rpc(bare, "judge")
    assert type(found) is exception_of(code)
    assert "judge" in found.message
    assert found.metadata["peer"] == "judge"


def test_details_of_another_domain_or_damaged_are_not_ours() -> None:
    for trailing in (((KEY, b"\xff\xff"),), ((KEY, b""),), (("other", "x"),)):
        bare = grpc.aio.AioRpcError(
            grpc.StatusCode.NOT_FOUND, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing)
        )
        assert decode(bare) is None
        assert isinstance(from_rpc(bare, "x"), errors.NotFoundError)


def test_addresses_stay_out_of_the_text() -> None:
    bare = grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE,
        grpc.aio.Metadata(),
        grpc.aio.Metadata(),
        details="failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.7:50052:"
        " Failed to connect to remote host: connect: Connection refused (111)",
    )
    assert from_rpc(bare, "registry").message == "registry cannot be reached (connection refused)"


def test_a_stream_that_ended_under_a_write_is_a_lost_peer() -> None:
    bare = grpc.aio.AioRpcError(
        grpc.StatusCode.INTERNAL,
        grpc.aio.Metadata(),
        grpc.aio.Metadata(),
        details="Internal error from Core",
        debug_error_string='Failed "execute_batch"',
    )
    found = from_rpc(bare, "registry")
    assert isinstance(found, errors.UnavailableError)
    assert found.metadata == {"peer": "registry"}


@given(
    message=st.text(),
    reason=st.text(max_size=63),
    metadata=st.dictionaries(st.text(max_size=300), st.text(), max_size=50),
    fields=st.lists(st.tuples(st.text(), st.text()), max_size=80),
)
def test_whatever_is_in_an_exception_fits_the_trailing_metadata(
    message: str, reason: str, metadata: dict[str, str], fields: list[tuple[str, str]]
) -> None:
    error = InvalidArgumentError(
        message * 20,
        violations=[Violation(field * 9, text * 9) for field, text in fields],
        reason=reason,
        metadata=metadata,
    )
    _, text, trailing = encode(error)
    assert len(text.encode()) <= 768
    assert len(trailing[0][1]) < 4500
    back = decode(wire(error))
    assert isinstance(back, InvalidArgumentError)
    assert len(back.violations) <= len(fields)
    if len(back.violations) < len(fields):
        assert back.violations[-1].description.endswith(" more")
