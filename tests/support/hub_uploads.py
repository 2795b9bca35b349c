"""A local double of the Hugging Face hub that takes a repository's files, for its own client."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from support.recording_http import Answer, Request, serving

TOKEN = "hf_of_this_test"


class UploadHub:
    """What was stored, by repository and branch, as the hub would have it."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.created: list[dict[str, object]] = []
        self.files: dict[str, bytes] = {}
        """By `OWNER/NAME@BRANCH:PATH`."""
        self._large: dict[str, bytes] = {}

    def answer(self, request: Request) -> Answer:
        """One request of the hub's client."""
        path = urlsplit(request.path).path
        if path.startswith("/objects/"):
            self._large[path.rpartition("/")[2]] = request.body
            return Answer(body=b"")
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return Answer(401, b'{"error": "Invalid username or password."}')
        if path == "/api/repos/create":
            self.created.append(json.loads(request.body))
            name = json.loads(request.body)
            where = f"{self.endpoint}/{name.get('organization', 'me')}/{name['name']}"
            return _json({"url": where, "name": f"{name.get('organization')}/{name['name']}"})
        if "/branch/" in path or path == "/api/validate-yaml":
            return _json({"warnings": [], "errors": []})
        if "/preupload/" in path:
            asked = json.loads(request.body)["files"]
            return _json({"files": [_mode(file) for file in asked]})
        if path.endswith("/info/lfs/objects/batch"):
            asked = json.loads(request.body)["objects"]
            return _json({"transfer": "basic", "objects": [self._object(one) for one in asked]})
        if "/commit/" in path:
            return self._commit(path, request.body)
        return _json({"sha": "0" * 40, "siblings": []})

    def _object(self, asked: dict[str, object]) -> dict[str, object]:
        upload = {"href": f"{self.endpoint}/objects/{asked['oid']}", "header": {}}
        return {**asked, "actions": {"upload": upload}}

    def _commit(self, path: str, body: bytes) -> Answer:
        repository, _, branch = path.removeprefix("/api/models/").partition("/commit/")
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            name = f"{repository}@{branch}:{value.get('path')}"
            if entry["key"] == "file":
                self.files[name] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                self.files[name] = self._large[value["oid"]]
        url = f"{self.endpoint}/{repository}/commit/{'1' * 40}"
        return _json({"commitUrl": url, "commitOid": "1" * 40, "success": True})


def _mode(file: dict[str, str]) -> dict[str, object]:
    large = file["path"].endswith((".safetensors", ".gguf"))
    return {
        "path": file["path"],
        "uploadMode": "lfs" if large else "regular",
        "shouldIgnore": False,
        "oid": None,
    }


def _json(content: object) -> Answer:
    return Answer(body=json.dumps(content).encode())


@contextmanager
def upload_hub() -> Iterator[UploadHub]:
    """Runs until the block ends."""
    hub = UploadHub()
    with serving(hub.answer) as hub.endpoint:
        yield hub
