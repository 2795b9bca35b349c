"""A judge for RULER that is no model: it reads the real prompt and scores by a written rule.

`python examples/reading_judge.py`, then a job whose judge is at http://127.0.0.1:8020/v1, such as
ruler_alone.yaml. It speaks OpenAI's chat completions and sees what any judge model sees, the words
of the prompt: neither the environment's reward nor its answers. So a curve can be drawn without a
key, and again to the last digit. For a task of your own write a rule of your own, or ask a model.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Message = Mapping[str, Any]
"""As the prompt shows it: its role is its first key, and the value of that its text."""
Verdict = tuple[float, str]
"""A score in [0, 1], and one sentence why."""
Rule = Callable[[Sequence[Message]], Verdict]

_NONCE = re.compile(r"tags ending in -([a-z]+)")
_MARKER = re.compile(r"\[ends with the context:\]\n.*")
_QUESTION = "Question: "
_ACTION = re.compile(r"\s*(search|select):[ \t]*([^\n]*)", re.IGNORECASE)
_ROW = re.compile(r"^(\d+) \| (.+) \| (.+)$", re.MULTILINE)
_MOST_BYTES = 4 * 1024 * 1024
PORT = 8020


class UnreadableError(Exception):
    """What was asked is nothing that this judge can score."""


def attempts(system: str, user: str) -> dict[str, list[Message]]:
    """The attempts of RULER's prompt by id, each with the messages that all of them share.

    Raises:
        UnreadableError: there is none.
    """
    nonce = _NONCE.search(system)
    section = re.compile(
        rf'^<(context|attempt)-{nonce[1] if nonce else ""}(?: id="(\d+)")?>\n(.*?)\n</\1-',
        re.DOTALL | re.MULTILINE,
    )
    shared: list[Message] = []
    found: dict[str, list[Message]] = {}
    for tag, number, text in section.findall(user) if nonce else ():
        if tag == "context":
            shared = _messages(text)
        else:
            # One that ends where the others go on shows its last message again.
            found[number] = [*shared, *_messages(_MARKER.sub("", text))]
    if not found:
        raise UnreadableError("there are no attempts in the prompt")
    return found


def _messages(text: str) -> list[Message]:
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return [json.loads(line) for line in lines]


def find_email(conversation: Sequence[Message]) -> Verdict:
    """How far an attempt came at the email that a question is about.

    The right one is by the person whom the question names, on a subject of which it has a word.

    Raises:
        UnreadableError: no question is asked.
    """
    asked = [
        place
        for place, message in enumerate(conversation)
        if str(message.get("user", "")).startswith(_QUESTION)
    ]
    if not asked:
        raise UnreadableError("there is no 'Question: …' in an attempt")
    # An earlier question is the worked example's.
    question = conversation[asked[-1]]["user"].removeprefix(_QUESTION)
    shown: dict[str, bool] = {}
    turns = 0
    acted = False
    for message in conversation[asked[-1] + 1 :]:
        for number, sender, subject in _ROW.findall(str(message.get("user", ""))):
            shown[number] = is_about(question, sender, subject)
        if "assistant" not in message:
            continue
        turns += 1
        action = _ACTION.match(str(message["assistant"]))
        acted |= action is not None
        if action is not None and action[1].lower() == "select":
            chosen = re.match(r"\d*", action[2])
            if chosen is not None and shown.get(chosen[0]):
                return max(0.7, 1.2 - 0.1 * turns), f"It selected the email, in {turns} turns."
            break
    if any(shown.values()):
        return 0.5, "Its search showed the email, and it did not select it."
    if shown:
        return 0.25, "Its searches showed other emails."
    if acted:
        return 0.1, "It acted and never saw an email."
    return 0.0, "It wrote no action."


def is_about(question: str, sender: str, subject: str) -> bool:
    """Whether a question names an email's sender and has a word of its subject."""
    return sender.lower() in question.lower() and not _words(subject).isdisjoint(_words(question))


def _words(text: str) -> set[str]:
    # Shorter ones, such as "to", say nothing.
    return set(re.findall(r"[a-z]{4,}", text.lower()))


RULES: dict[str, Rule] = {"email_search": find_email}
"""By the name of the model that a job asks."""


class Judge:
    """Answers requests of OpenAI's chat completions."""

    def __init__(self, wrong: float = 0.0, seed: int = 0) -> None:
        """`wrong` is the share of scores that are drawn in place of judged.

        The draws follow from `seed`, the attempt and those beside it, whatever their order.
        """
        self._wrong = wrong
        self._seed = seed

    def answer(self, request: Any) -> dict[str, Any]:
        """A chat completion whose text is RULER's JSON.

        Raises:
            UnreadableError: the request is none of RULER's, or no rule's.
        """
        try:
            rule = RULES[request["model"]]
            first = {message["role"]: message["content"] for message in request["messages"][:2]}
            found = attempts(first["system"], first["user"])
        except (KeyError, TypeError, ValueError) as error:
            known = ", ".join(RULES)
            raise UnreadableError(
                f"allowed is RULER's prompt, with a model of: {known} ({error!r})"
            ) from error
        beside = sorted(json.dumps(messages) for messages in found.values())
        scores = []
        for number, messages in found.items():
            score, why = rule(messages)
            rng = random.Random(json.dumps([self._seed, json.dumps(messages), beside]))
            if rng.random() < self._wrong:
                score, why = round(rng.random(), 2), "Drawn."
            scores.append({"attempt_id": number, "explanation": why, "score": round(score, 2)})
        text = json.dumps({"scores": scores})
        return {
            "id": "read",
            "object": "chat.completion",
            "created": 0,
            "model": request["model"],
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": text},
                }
            ],
        }


def serve(judge: Judge, port: int) -> ThreadingHTTPServer:
    """A server on loopback that is bound, and not yet running."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path != "/v1/models":
                return self._send(404, _error(f"there is no {self.path}"))
            models = [{"id": name, "object": "model"} for name in RULES]
            self._send(200, {"object": "list", "data": models})

        def do_POST(self) -> None:
            length = self.headers.get("content-length", "")
            if not length.isdecimal() or int(length) > _MOST_BYTES:
                self.close_connection = True
                return self._send(413, _error(f"allowed are up to {_MOST_BYTES} bytes"))
            body = self.rfile.read(int(length))
            if self.path != "/v1/chat/completions":
                return self._send(404, _error(f"there is no {self.path}"))
            try:
                self._send(200, judge.answer(json.loads(body)))
            except (UnreadableError, ValueError, RecursionError) as error:
                self._send(400, _error(str(error)))

        def _send(self, status: int, answer: dict[str, Any]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """A line a request would be thousands."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error"}}


def serving(arguments: Sequence[str]) -> ThreadingHTTPServer:
    """The server that the command line asks for, bound and not yet running."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=PORT, help=f"0 for a free one. [{PORT}]")
    parser.add_argument("--wrong", type=float, default=0.0, help="share of scores drawn. [0]")
    parser.add_argument("--seed", type=int, default=0, help="what is drawn follows from it. [0]")
    options = parser.parse_args(arguments)
    if not 0 <= options.wrong <= 1:
        parser.error(f"--wrong is {options.wrong}; allowed is 0 to 1")
    return serve(Judge(options.wrong, options.seed), options.port)


def main() -> None:
    """Serves until Ctrl-C."""
    with serving(sys.argv[1:]) as server:
        print(f"judging at http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main()
