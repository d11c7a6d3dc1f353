"""More gangs than there is room for, all let go at once: the scheduler alone has to see that none of them is torn.

Without a pool the queues let everybody go. Each gang's workers wait for its master: gangs of which only the masters
were bound would wait for each other for ever.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.test_gangs import gang
from tests.support.acceptance.jobs import recording, spans
from tests.support.acceptance.stack import Stack, clean_environment, fresh, until

pytestmark = pytest.mark.acceptance


@dataclass
class Poolless(Stack):
    """A cluster whose queues share nothing."""

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
    # They are all let go: more than four cores' worth of them.
    until(lambda: sum("admission" in (poolless.job(name).get("status") or {}) for name in names) == len(names))
    for name in names:
        poolless.reach(name, "Succeeded")
    assert len(spans(records)) == sum(sizes)
    assert {each.attempt for each in spans(records)} == {1}
