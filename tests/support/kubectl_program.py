"""A double of kubectl, the program: it answers from a file and really forwards ports.

What it prints and how it ends is what kubectl 1.32 does. Hundreds are started: it imports nothing
that takes longer to load than it takes to run, for which its file is marshalled.
"""

from __future__ import annotations

import marshal
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Any

STATE = "FAKE_KUBECTL_STATE"
KINDS = {
    "pods": "Pod",
    "services": "Service",
    "deployments": "Deployment",
    "secret": "Secret",
    "secrets": "Secret",
    "nodes": "Node",
    "storageclasses": "StorageClass",
    "runtimeclasses": "RuntimeClass",
    "namespace": "Namespace",
}


def main() -> None:
    """Runs as kubectl."""
    state = _state()
    with open(state["log"], "a") as log:
        log.write(f"{(os.getpid(), sys.argv[1:])!r}\n")
    options = dict(a[2:].partition("=")[::2] for a in sys.argv[1:] if a.startswith("--"))
    words = [a for a in sys.argv[1:] if not a.startswith("--")]
    if options.get("context", state["context"]) != state["context"]:
        _fail(f"error: context {options['context']!r} does not exist".replace("'", '"'))
    for beginning, refusal in state["refusals"].items():
        if " ".join(words).startswith(beginning):
            _fail(refusal)
    match words:
        case ["config", "current-context"]:
            print(state["context"])
        case ["get"] if "raw" in options:
            _raw(options["raw"], state)
        case ["get", *what]:
            _get(what, options, state)
        case ["logs", pod]:
            _logs(pod, options, state)
        case ["api-resources"]:
            print("\n".join(state["resources"]))
        case ["auth", "can-i", verb, resource]:
            everything = verb == resource == "*"
            refused = state["denied"] if everything else f"{verb} {resource}" in state["denied"]
            answer = "no" if refused else "yes"
            print(answer)
            sys.exit(answer == "no")
        case ["port-forward", target, ports]:
            local, _, remote = ports.partition(":")
            address = state["forwards"].get(f"{target}:{remote}", "")
            if options["namespace"] != state["namespace"] or not address:
                kind, _, name = target.partition("/")
                _fail(f'Error from server (NotFound): {kind}s "{name}" not found')
            # Most of what starting it costs; dozens are started for one `podium install`.
            import asyncio

            asyncio.run(_forward(int(local), int(remote), address))
        case _:
            _fail(f"error: unknown command {words}: the double does not know it")


def _state() -> dict[str, Any]:
    with open(os.environ[STATE], "rb") as file:
        state: dict[str, Any] = marshal.load(file)
    return state


def _json(value: object) -> str:
    import json

    return json.dumps(value)


def _raw(path: str, state: dict[str, Any]) -> None:
    if path not in state["raw"]:
        _fail("Error from server (NotFound): the server could not find the requested resource")
    print(_json(state["raw"][path]))


def _logs(pod: str, options: dict[str, str], state: dict[str, Any]) -> None:
    """Whole seconds alone count of a time, as with the API server; a pod that goes ends it."""
    if not any(o["kind"] == "Pod" and o["metadata"]["name"] == pod for o in state["objects"]):
        _fail(f'Error from server (NotFound): pods "{pod}" not found')
    if pod not in state["logs"]:
        _fail(
            f'Error from server (BadRequest): container "trainer" in pod "{pod}" is waiting to '
            "start: PodInitializing"
        )
    shown = 0
    while pod in state["logs"]:
        name = f"{pod}/previous" if "previous" in options else pod
        for line in state["logs"].get(name, ())[shown:]:
            if line[:19] >= options.get("since-time", "")[:19]:
                print(line, flush=True)
        shown = len(state["logs"].get(name, ()))
        if "follow" not in options:
            return
        time.sleep(0.01)
        state = _state()


def _get(what: list[str], options: dict[str, str], state: dict[str, Any]) -> None:
    kinds = [KINDS[name] for name in what[0].split(",")]
    found = [item for item in state["objects"] if item["kind"] in kinds]
    namespace = options.get("namespace", "default")
    found = [
        item
        for item in found
        if item["metadata"].get("namespace", namespace) == namespace == state["namespace"]
        or "namespace" not in item["metadata"]
    ]
    if len(what) == 2:
        named = [item for item in found if item["metadata"]["name"] == what[1]]
        if not named:
            _fail(f'Error from server (NotFound): {what[0]}s "{what[1]}" not found')
        print(_json(named[0]))
        return
    wanted = dict(part.split("=") for part in options.get("selector", "").split(",") if part)
    found = [item for item in found if wanted.items() <= _labels(item).items()]
    if options.get("output") == "name":
        print("\n".join(f"{item['kind'].lower()}/{item['metadata']['name']}" for item in found))
    else:
        print(_json({"apiVersion": "v1", "kind": "List", "items": found}))


def _labels(item: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = item["metadata"].get("labels", {})
    return labels


def _fail(words: str) -> None:
    print(words, file=sys.stderr)
    sys.exit(1)


async def _forward(local: int, remote: int, address: str) -> None:
    """Forwards until a connection cannot be made, as kubectl when its pod is gone."""
    import asyncio

    host, _, port = address.rpartition(":")
    lost = asyncio.Event()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        print(f"Handling connection for {local}", flush=True)
        try:
            there = await asyncio.open_connection(host, int(port))
        except OSError:
            print(
                f'E1122 00:33:01.204852   22708 portforward.go:424] "Unhandled Error" err="an '
                f"error occurred forwarding {local} -> {remote}: error forwarding port {remote} "
                'to pod abc, uid : connect: connection refused"',
                file=sys.stderr,
                flush=True,
            )
            lost.set()
            return
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    try:
        server = await asyncio.start_server(serve, "127.0.0.1", local)
    except OSError:
        _fail(f"Unable to listen on port {local}: bind: address already in use")
        return
    async with server:
        print(f"Forwarding from 127.0.0.1:{local} -> {remote}", flush=True)
        await lost.wait()
    _fail("error: lost connection to pod")


if __name__ == "__main__":
    main()
