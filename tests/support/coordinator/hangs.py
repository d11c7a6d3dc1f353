"""Calls that hang when a test wants it, and the answers of a probe during this time.

One rule: a call hangs in its own thread, inside the loop that makes the call.
"""

import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.waiting import SECONDS, patient

Call = tuple[Any, str]
"""A class or module, and the name of its function."""


class Hangs:
    """Calls that a test can hold, by the names of the loops that make these calls."""

    def __init__(self, calls: Mapping[str, Call], patch: pytest.MonkeyPatch) -> None:
        self._held: dict[str, threading.Event] = {}
        self._entered: dict[str, threading.Event] = {}
        for name, (owner, call) in calls.items():
            patch.setattr(owner, call, self._wrap(name, getattr(owner, call)))

    def _wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            if (held := self._held.get(name)) is not None:
                self._entered[name].set()
                held.wait(patient(SECONDS))
            return call(*args, **options)

        return wrapped

    @contextmanager
    def hanging(self, name: str, poke: Callable[[], object]) -> Iterator[None]:
        """Let the next call of a loop hang; `poke` causes this call."""
        self._entered[name], self._held[name] = threading.Event(), threading.Event()
        try:
            poke()
            assert self._entered[name].wait(patient(SECONDS))
            yield
        finally:
            self._held.pop(name).set()


def ask(url: str) -> tuple[int, list[str]]:
    """Return the code and the lines of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode().splitlines()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode().splitlines()


def failing(url: str, probe: str = "healthz") -> list[str]:
    """Return the lines of the checks that fail."""
    return [line for line in ask(f"{url}/{probe}?verbose")[1] if line.startswith("[-]")]
