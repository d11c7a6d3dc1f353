"""The table of calls: the methods of both clients are made from this table, and the program answers every call of the
table.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import torchq
import torchq.aio
from coordinator.cli.rpc import rpc_server
from deploy.client.calls import FLAVOURS, FOLDER, Flavour
from torchq._calls import CALLS, OF_CLIENT, OF_JOB
from torchq._table import ANSWER_KINDS, PARAMETER_KINDS

SIGNATURES = Path(__file__).with_name("signatures.txt")


@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda flavour: flavour.module)
def test_the_methods_are_those_of_the_table(flavour: Flavour) -> None:
    assert (FOLDER / flavour.module).read_text() == flavour.text, "run `make manifests`"


def test_the_program_answers_every_call_of_the_table() -> None:
    assert set(rpc_server.METHODS) == set(CALLS)


def test_every_kind_of_the_table_is_known() -> None:
    kinds = {each.kind for call in CALLS.values() for each in call.parameters}
    assert kinds <= set(PARAMETER_KINDS)
    assert {call.answer for call in CALLS.values()} <= set(ANSWER_KINDS)


def test_a_call_that_changes_something_is_never_repeated() -> None:
    reads = {name for name, call in CALLS.items() if call.repeatable}
    assert reads.isdisjoint({"run", "submit", "command", *(f"job.{each}" for each in CHANGES)})


CHANGES = ("suspend", "resume", "restart", "cancel", "delete", "hold", "bump", "move", "scale")


def test_a_method_of_asyncio_has_the_parameters_of_the_other() -> None:
    pairs = [(torchq.Client, torchq.aio.Client, OF_CLIENT), (torchq.Job, torchq.aio.Job, OF_JOB)]
    for threads, tasks, calls in pairs:
        for call in calls.values():
            one, other = vars(threads)[call.name], vars(tasks)[call.name]
            if call.attribute:
                one, other = one.fget, other.fget
            assert inspect.signature(one).parameters == inspect.signature(other).parameters
            assert inspect.getdoc(one) == inspect.getdoc(other)
            assert inspect.iscoroutinefunction(other) == (not call.stream)


def test_public_names_and_signatures_are_kept() -> None:
    """A change here changes the programs of users. The change belongs in CHANGELOG.md, with the steps that users have
    to take.
    """
    assert "\n".join([*described(torchq), *described(torchq.aio)]) + "\n" == SIGNATURES.read_text()


def described(module: Any) -> list[str]:
    """Return a line for each public name of a module, and for each public member of its classes."""
    lines = []
    for name in module.__all__:
        value = getattr(module, name)
        lines.append(f"{module.__name__}.{name}{signature(value)}")
        if inspect.isclass(value) and value.__module__.startswith("torchq"):
            members = {each for kind in value.__mro__ if kind.__module__.startswith("torchq") for each in vars(kind)}
            for member in sorted(each for each in members if not each.startswith("_")):
                found = inspect.getattr_static(value, member)
                lines.append(f"{module.__name__}.{name}.{member}{signature(found)}")
    return lines


def signature(value: Any) -> str:
    if isinstance(value, property):
        assert value.fget is not None
        return f" -> {inspect.signature(value.fget).return_annotation}"
    if inspect.isclass(value) and issubclass(value, BaseException):
        return f"({', '.join(base.__name__ for base in value.__bases__)})"
    return str(inspect.signature(value)) if isinstance(value, Callable) else ""  # type: ignore[arg-type]
