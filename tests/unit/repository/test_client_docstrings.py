"""What a client's methods take and raise stands in their words, as the contract has it."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from docs_site import contract
from google.protobuf.descriptor import Descriptor, MethodDescriptor, ServiceDescriptor
from podium.core import errors
from podium.sdk.checkpoints import Checkpoints
from podium.sdk.environments import Environments
from podium.sdk.evaluations import Evaluations
from podium.sdk.jobs import Jobs
from podium.sdk.judge import Judge
from podium.sdk.models import Models
from podium.sdk.policies import Policies
from podium.sdk.sessions import Sessions
from podium.sdk.sync import Client
from podium.sdk.sync_models import SyncModel, SyncModels
from podium.training.baseline import Model
from podium.training.model import TrainableModel
from support.document_commands import ROOT
from support.gathered import wrong_of

PARTS = (Checkpoints, Environments, Evaluations, Jobs, Judge, Policies, Sessions)
CLASSES = (*PARTS, Models, TrainableModel, Model, Client, SyncModel, SyncModels)
# Their words point to the function with which they share arguments.
POINTERS = {"Client.train", "Client.train_sft"}
# Said by a class of all its methods, since it is true of every call.
OF_EVERY_CALL = ("UnavailableError", "DeadlineExceededError")
ERRORS = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", name.removesuffix("Error")).upper(): name
    for name in vars(errors)
    if name.endswith("Error")
}
"""By the status as which it travels."""
_STATUS = re.compile(r"\b[A-Z]+(?:_[A-Z]+)*\b")
_FAILS = re.compile(r"Fails (?:only )?(?:with|as|when).*?(?:\.(?: |$)|$)", re.DOTALL)


def methods(thing: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, member in vars(thing).items():
        if not name.startswith("_") and inspect.isfunction(member):
            yield f"{thing.__name__}.{name}", inspect.unwrap(member)


def section(words: str, title: str) -> str:
    found = re.search(rf"^{title}:\n((?:[ \n].*\n?)+)", words, re.MULTILINE)
    return found[1] if found else ""


def unsaid(method: Callable[..., Any]) -> set[str]:
    """Parameters that neither `Args` nor the words name."""
    words = inspect.getdoc(method) or ""
    # Of several in one line, as in `sampling, episode: …`.
    listed = re.findall(r"^ {4}([\w, ]+):", section(words, "Args"), re.MULTILINE)
    said = {name for line in listed for name in line.split(", ")}
    return set(list(inspect.signature(method).parameters)[1:]) - said


METHODS = [each for thing in CLASSES for each in methods(thing)]


def test_each_argument_of_a_method_is_said() -> None:
    by_place = dict(METHODS)
    for place in POINTERS:
        assert re.search(r"see `podium\.train(_sft)?`", inspect.getdoc(by_place[place]) or ""), (
            place
        )
    wrong = wrong_of([each for each in METHODS if each[0] not in POINTERS], unsaid)
    assert not wrong, wrong


@functools.cache
def comments() -> dict[str, str]:
    found: dict[str, str] = {}
    for named in contract.comments(ROOT / "proto").values():
        found |= named
    return found


@functools.cache
def statuses(name: str) -> set[str]:
    """The statuses with which a method of the contract fails, as its comment says."""
    text = " ".join(comments()[name].split())
    found: set[str] = set()
    for sentence in _FAILS.findall(text):
        found |= set(_STATUS.findall(sentence)) & set(ERRORS)
        for clause in re.split(r";|, and ", sentence):
            named = set(_STATUS.findall(clause.partition(" as ")[0])) & set(ERRORS)
            for other in re.findall(r"as (\w+) does", clause):
                of_other = statuses(f"{name.rpartition('.')[0]}.{other}")
                found |= of_other & named if named else of_other
    return found


def called(method: Callable[..., Any]) -> Iterator[MethodDescriptor]:
    """The methods of the contract that a client's calls by itself."""
    module = vars(sys.modules[method.__module__])
    services: list[ServiceDescriptor] = [
        service
        for each in module.values()
        if hasattr(getattr(each, "DESCRIPTOR", None), "services_by_name")
        for service in each.DESCRIPTOR.services_by_name.values()
    ]
    for name in re.findall(r"\b_?stub\.(\w+)", inspect.getsource(method)):
        yield from (one for each in services if (one := each.methods_by_name.get(name)))


def paged(request: Descriptor) -> bool:
    """Whether what a client can get wrong of it is the token of a page, which the SDK writes."""
    return "page_token" in request.fields_by_name


OF_PARTS = [each for thing in PARTS for each in methods(thing)]


def unsaid_errors(method: Callable[..., Any]) -> set[str]:
    """Errors that the contract has for what a method calls, and its words have not."""
    said = section(inspect.getdoc(method) or "", "Raises")
    return {
        ERRORS[status]
        for each in called(method)
        for status in statuses(each.full_name)
        if ERRORS[status] not in OF_EVERY_CALL
        and not (status == "INVALID_ARGUMENT" and paged(each.input_type))
        and f"{ERRORS[status]}:" not in said
    }


def test_what_the_contract_fails_with_is_said() -> None:
    wrong = wrong_of(OF_PARTS, unsaid_errors)
    assert not wrong, wrong


@pytest.mark.parametrize("part", PARTS)
def test_a_part_says_what_every_call_of_it_raises(part: type) -> None:
    assert [name for name in OF_EVERY_CALL if f"`{name}`" not in (part.__doc__ or "")] == []


def test_what_is_not_said_is_seen() -> None:
    def method(self: object, one: int, two: int, three: int) -> None:
        """Words.

        Args:
            one, two: of them.
        """

    assert unsaid(method) == {"three"}
    assert "NOT_FOUND" in statuses("podium.jobs.v1.JobService.ListSteps")
    assert [each.name for each in called(Jobs.get)] == ["GetJob"]
    assert [each.name for each in called(Judge.check)] == ["CheckReward"]
