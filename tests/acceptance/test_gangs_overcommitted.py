"""More admitted gangs than the node can hold: the scheduler alone must bind each gang as a whole.

Without a pool the queues admit all jobs at once. The workers of a gang wait for its master. If only the masters were
bound, the gangs would block each other without end.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.test_gangs import gang
from tests.support.acceptance.jobs import recording, spans
from tests.support.acceptance.stack import Stack, clean_environment, fresh, until


@dataclass
class Poolless(Stack):
    """A cluster whose queues have no shared pool."""

    @property
    def _bare(self) -> dict[str, str]:
        return clean_environment(TORCHQ_POOL="none")


@pytest.fixture
def poolless(tmp_path: Path) -> Iterator[Stack]:
    (tmp_path / "work").mkdir()
    stack = Poolless(tmp_path / "data", tmp_path / "work")
    try:
        said = stack.up()
        assert said.code == 0, said
        yield stack
    finally:
        stack.close()


def test_overcommitted_gangs_are_bound_whole_and_all_succeed(poolless: Stack, records: Path) -> None:
    sizes = [3, 2, 4, 3, 2, 1, 4, 2]
    names = [fresh("gang") for _ in sizes]
    jobs = [gang(name, recording(records, 0.2), workers=size - 1) for name, size in zip(names, sizes, strict=True)]
    poolless.submit(*jobs)
    # All jobs are admitted, although they need more than the four cores of the node.
    until(lambda: sum("admission" in (poolless.job(name).get("status") or {}) for name in names) == len(names))
    for name in names:
        poolless.reach(name, "Succeeded")
    assert len(spans(records)) == sum(sizes)
    assert {each.attempt for each in spans(records)} == {1}
