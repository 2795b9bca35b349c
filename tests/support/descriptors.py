"""Every method of every Podium contract, and messages of any type, from the descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import pkgutil
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf import message_factory, struct_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

NOUNS = ("jobs", "inference", "rollout", "environment", "judge", "trainer", "registry")


def methods() -> list[MethodDescriptor]:
    """Every method, services in the order of NOUNS."""
    found = []
    for noun in NOUNS:
        package = importlib.import_module(f"podium.{noun}.v1")
        for name in sorted(module.name for module in pkgutil.iter_modules(package.__path__)):
            if name.endswith("_service_pb2"):
                module = importlib.import_module(f"podium.{noun}.v1.{name}")
                for service in module.DESCRIPTOR.services_by_name.values():
                    found.extend(service.methods)
    return found


def path_of(method: MethodDescriptor) -> str:
    """`/package.Service/Method`."""
    return f"/{method.containing_service.full_name}/{method.name}"


def class_of(descriptor: Descriptor) -> type[Message]:
    """The generated class."""
    return message_factory.GetMessageClass(descriptor)


async def finish(
    channel: grpc.aio.Channel, method: MethodDescriptor, data: bytes | None, **options: Any
) -> Any:
    """Makes a call with one request of raw bytes; the call, once it has ended.

    None sends nothing and keeps the stream of requests open: gRPC tells a write that meets
    the end of its call as INTERNAL or CANCELLED, in place of the status that ended it.
    """
    incoming = "stream" if method.client_streaming else "unary"
    outgoing = "stream" if method.server_streaming else "unary"
    callable_ = getattr(channel, f"{incoming}_{outgoing}")(path_of(method))
    if not method.client_streaming:
        requests: Any = data or b""
    elif data is None:
        requests = silence()
    else:
        requests = iter([data])
    call = callable_(requests, timeout=120, **options)
    with contextlib.suppress(grpc.aio.AioRpcError):
        # A stream has no status before its last message was read.
        if method.server_streaming:
            async for _ in call:
                pass
        else:
            await call
    return call


async def silence() -> AsyncIterator[bytes]:
    """Requests of a client that sends none and stays."""
    await asyncio.Event().wait()
    yield b""


class EchoHandlers(grpc.GenericRpcHandler):
    """A test double of every service at once: reads what is sent, answers with empty messages."""

    def __init__(self) -> None:
        self._methods = {path_of(method): method for method in methods()}

    def service(self, handler_call_details: Any) -> Any:
        """See grpc.GenericRpcHandler."""
        method = self._methods.get(handler_call_details.method)
        if method is None:
            return None
        response = class_of(method.output_type)

        async def read(incoming: Any) -> None:
            if method.client_streaming:
                async for _ in incoming:
                    pass

        async def one(incoming: Any, context: Any) -> Message:
            await read(incoming)
            return response()

        async def many(incoming: Any, context: Any) -> AsyncIterator[Message]:
            await read(incoming)
            yield response()

        make = getattr(
            grpc,
            f"{'stream' if method.client_streaming else 'unary'}_"
            f"{'stream' if method.server_streaming else 'unary'}_rpc_method_handler",
        )
        return make(
            many if method.server_streaming else one,
            request_deserializer=class_of(method.input_type).FromString,
            response_serializer=response.SerializeToString,
        )


def add_echo(servicer: EchoHandlers, server: grpc.aio.Server) -> None:
    """Adds it as a generated `add_…_to_server` would."""
    server.add_generic_rpc_handlers((servicer,))


_SPECIAL = {
    "google.protobuf.Struct": lambda: _structs(),
    "google.protobuf.Timestamp": lambda: _times(2**31, "Timestamp"),
    "google.protobuf.Duration": lambda: _times(2**31, "Duration"),
}
_INT_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


@functools.cache
def messages(kind: type[Message], depth: int = 4) -> st.SearchStrategy[Message]:
    """Messages with right types and any values, rules or not; known enum values only, no NaN."""
    descriptor = kind.DESCRIPTOR
    special = _SPECIAL.get(descriptor.full_name)
    if special is not None:
        return special()

    @st.composite
    def build(draw: Any) -> Message:
        message = kind()
        oneofs = {}
        for field in descriptor.fields:
            if field.message_type is not None and depth == 0:
                continue
            if draw(st.booleans()):
                continue
            oneof = field.containing_oneof
            if oneof is not None and oneofs.setdefault(oneof.name, field.name) != field.name:
                continue
            _fill(draw, message, field, depth)
        return message

    return build()


def _fill(draw: Any, message: Message, field: FieldDescriptor, depth: int) -> None:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key, value = inner.fields_by_name["key"], inner.fields_by_name["value"]
        target = getattr(message, field.name)
        for name in draw(st.lists(scalars(key), max_size=3)):
            if value.message_type is None:
                target[name] = draw(scalars(value))
            else:
                target[name].CopyFrom(draw(messages(class_of(value.message_type), depth - 1)))
    elif inner is not None:
        strategy = messages(class_of(inner), depth - 1)
        if field.is_repeated:
            getattr(message, field.name).extend(draw(st.lists(strategy, max_size=2)))
        else:
            getattr(message, field.name).CopyFrom(draw(strategy))
            getattr(message, field.name).SetInParent()
    elif field.is_repeated:
        getattr(message, field.name).extend(draw(st.lists(scalars(field), max_size=3)))
    else:
        setattr(message, field.name, draw(scalars(field)))


@functools.cache
def scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    """Values of a scalar field."""
    if field.enum_type is not None:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if field.cpp_type in _INT_RANGES:
        return st.integers(*_INT_RANGES[field.cpp_type])
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT:
        return st.floats(width=32, allow_nan=False)
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return st.floats(allow_nan=False)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=20)
    return texts()


@functools.cache
def texts() -> st.SearchStrategy[str]:
    """Text, with what YAML could take for something else."""
    tricky = ["", "no", "null", "~", "1e-5", "0x10", "2026-01-01", "a: b", "- a", "#", "1:30"]
    breaks = ["\n", "a\n b\n", "a\r\nb"]
    return st.one_of(st.text(max_size=20), st.sampled_from(tricky + breaks))


@functools.cache
def _structs() -> st.SearchStrategy[Message]:
    leaves = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**53), 2**53),
        st.floats(allow_nan=False, allow_infinity=False),
        texts(),
    )
    values = st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(texts(), inner, max_size=3)
        ),
        max_leaves=6,
    )

    def build(plain: dict[str, Any]) -> Message:
        struct = struct_pb2.Struct()
        struct.update(plain)
        return struct

    return st.dictionaries(texts(), values, max_size=3).map(build)


def _times(limit: int, name: str) -> st.SearchStrategy[Message]:
    from google.protobuf import duration_pb2, timestamp_pb2

    kind = timestamp_pb2.Timestamp if name == "Timestamp" else duration_pb2.Duration
    return st.integers(0, limit).map(lambda seconds: kind(seconds=seconds, nanos=1000))
