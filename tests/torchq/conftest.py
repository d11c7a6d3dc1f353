"""Fixtures for tests of the package that users import."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.callers import CALLERS, Caller
from tests.support.client.programs import FakeProgram, install_fake

Plan = Callable[..., FakeProgram]


@pytest.fixture(params=CALLERS)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    """Yield each of the two clients."""
    found = CALLERS[request.param]()
    yield found
    found.close()


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Return a function that puts a program with a plan first on PATH."""

    def install(calls: Any = None, **more: Any) -> FakeProgram:
        program = install_fake(tmp_path / "bin", calls, **more)
        for name, value in program.environment.items():
            monkeypatch.setenv(name, value)
        return program

    return install
