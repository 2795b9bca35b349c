"""A double of kubectl: a program of that name, which answers from a file and really forwards ports.

`FakeKubectl(folder)` puts it into a folder for PATH. What it prints and how it ends is what kubectl
1.32 does.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

GOLDEN = Path(__file__).parents[1] / "golden" / "chart"
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


class FakeKubectl:
    """The test's end: what the double answers, and what it was asked."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        program = folder / "kubectl"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" "$@"\n')
        program.chmod(0o755)
        self._state = folder / "state.json"
        self._log = folder / "log"
        self.objects: list[dict[str, Any]] = []
        self.forwards: dict[str, str] = {}
        """`service/NAME:PORT` of a namespace's to the address that plays it."""
        self.refusals: dict[str, str] = {}
        """What it says, and fails with, by the beginning of its arguments."""
        self.raw: dict[str, Any] = {}
        self.logs: dict[str, list[str]] = {}
        """By pod, with `NAME/previous` for the container before: lines that begin with a time."""
        self.resources: list[str] = []
        self.denied: list[str] = []
        """What `auth can-i` says no to."""
        self.namespace = "podium"
        self.context = "a-cluster"
        self.write()

    def write(self) -> None:
        """Makes what was set count."""
        shown = {k: v for k, v in vars(self).items() if not k.startswith("_") and k != "folder"}
        draft = self._state.with_suffix(".draft")
        draft.write_text(json.dumps({**shown, "log": str(self._log)}))
        draft.replace(self._state)

    def play_release(self, address: str, token: str, case: str = "default") -> None:
        """Has the objects of one of the chart's golden files; one server plays every service."""
        self.objects = json.loads(_release(case))
        for item in self.objects:
            if item["kind"] == "Secret" and "token" in item["data"]:
                item["data"]["token"] = base64.b64encode(token.encode()).decode()
            if item["kind"] == "Service":
                for port in item["spec"]["ports"]:
                    target = f"service/{item['metadata']['name']}:{port['port']}"
                    self.forwards[target] = address
        self.write()

    @property
    def environment(self) -> dict[str, str]:
        """For the process under test."""
        return {
            "PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}",
            STATE: str(self._state),
        }

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of each run, in order."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [json.loads(line)["arguments"] for line in lines]

    def pids(self, command: str) -> list[int]:
        """The processes that ran a command, in order."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        entries = [json.loads(line) for line in lines]
        return [entry["pid"] for entry in entries if command in entry["arguments"]]


@functools.cache
def _release(case: str) -> str:
    """What counts of a golden file, as JSON, which is read in a tenth of the time."""
    import yaml

    rendered = yaml.load_all((GOLDEN / f"{case}.yaml").read_text(), yaml.CSafeLoader)
    return json.dumps([o for o in rendered if o["kind"] in ("Service", "Deployment", "Secret")])


def main() -> None:
    """Runs as kubectl."""
    state = json.loads(Path(os.environ[STATE]).read_text())
    with Path(state["log"]).open("a") as log:
        log.write(json.dumps({"pid": os.getpid(), "arguments": sys.argv[1:]}) + "\n")
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


def _raw(path: str, state: dict[str, Any]) -> None:
    if path not in state["raw"]:
        _fail("Error from server (NotFound): the server could not find the requested resource")
    print(json.dumps(state["raw"][path]))


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
        state = json.loads(Path(os.environ[STATE]).read_text())


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
        print(json.dumps(named[0]))
        return
    wanted = dict(part.split("=") for part in options.get("selector", "").split(",") if part)
    found = [item for item in found if wanted.items() <= _labels(item).items()]
    if options.get("output") == "name":
        print("\n".join(f"{item['kind'].lower()}/{item['metadata']['name']}" for item in found))
    else:
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))


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
