"""Random and damaged bytes to every method of every contract."""

from __future__ import annotations

import random

import grpc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from podium.kit.rpc import Server, ServerSettings
from podium.kit.rpc.details import KEY
from support.descriptors import EchoHandlers, add_echo, class_of, finish, messages, methods, path_of
from support.full import full

ALLOWED = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
LEAKS = ("DecodeError", "Error parsing", "upb", "Traceback", "Exception", "<class")


def inputs(method, randomness: random.Random, examples: int) -> list[bytes]:
    """Noise, and right messages with bits flipped, cut short or doubled."""
    found = [randomness.randbytes(randomness.randint(1, 200)) for _ in range(2 * examples)]
    right: list[bytes] = []

    @settings(
        max_examples=examples,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(message=messages(class_of(method.input_type), depth=3))
    def collect(message) -> None:
        right.append(message.SerializeToString())

    collect()
    for data in right:
        found.append(data)
        if data:
            flipped = bytearray(data)
            flipped[randomness.randrange(len(data))] ^= 1 << randomness.randrange(8)
            found += [bytes(flipped), data[: len(data) // 2], data + data[:3]]
    # Nested deeper than any parser allows, and a field that claims more than there is.
    found += [b"\x0a\xff\xff\xff\xff\x0f", _nested(120)]
    return found


def _nested(depth: int) -> bytes:
    data = b""
    for _ in range(depth):
        size = len(data)
        prefix = bytes([size & 0x7F | 0x80, size >> 7]) if size > 127 else bytes([size])
        data = b"\x0a" + prefix + data
    return data


@pytest.mark.parametrize("examples", [2, full(5)])
async def test_no_bytes_are_an_internal_error_and_nothing_leaks(examples: int) -> None:
    server = Server("all", ServerSettings())
    server.add(add_echo, EchoHandlers(), "all")
    await server.start()
    refused = set()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            for method in methods():
                for data in inputs(method, random.Random(path_of(method)), examples):
                    call = await finish(channel, method, data)
                    code, trailing = await call.code(), dict(await call.trailing_metadata())
                    told = f"{await call.details()} {trailing}"
                    assert code in ALLOWED, (path_of(method), code, data, told)
                    assert not [leak for leak in LEAKS if leak in told]
                    if code is not grpc.StatusCode.OK:
                        assert KEY in trailing
                        refused.add(path_of(method))
    finally:
        await server.stop(0)
    assert refused == {path_of(method) for method in methods()}
