"""The leader's actions on the target of one job: the rows of the table in `coordinator.elastic.targets`."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.elastic import targets
from coordinator.elastic.targets import CARRY_OUT_SECONDS, STANDS_SECONDS, Decision
from crds.torchjob.status import Target
from queues.resizing.values import Reason, Resize, digest
from tests.coordinator.elastic.test_elastic_jobs import HEAD, elastic
from tests.support.coordinator.builders import KEY

NOW = 1000.0


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def target(workers: int, reason: str = "Idle", since: float = NOW - 1, **changes: Any) -> Target:
    return Target(**{"workers": workers, "reason": reason, "since": at(since), "wish": 4, **changes})


def resize(workers: int, reason: Reason = "Idle") -> Resize:
    return Resize(KEY, workers, reason, message="why")


OLD = NOW - STANDS_SECONDS
KEPT_SIZE = Decision(writes=True, target=target(6, since=NOW))
REMOVED = Decision(writes=True)


@pytest.mark.parametrize(
    ("workers", "written", "planned", "decision"),
    [
        pytest.param(4, None, None, Decision(), id="nothing to do"),
        pytest.param(
            4, None, resize(6), Decision(writes=True, target=target(6, since=NOW, message="why")), id="a new target"
        ),
        pytest.param(4, target(6), resize(6), Decision(grow=2), id="a growth that is written is granted"),
        pytest.param(4, target(6), resize(8), Decision(grow=2), id="no more than is written is granted"),
        pytest.param(
            4,
            target(6),
            resize(5),
            Decision(writes=True, target=target(5, since=NOW, message="why")),
            id="less room than before",
        ),
        pytest.param(4, target(6), None, REMOVED, id="no room any more"),
        pytest.param(6, target(8), None, KEPT_SIZE, id="no room any more, and idle growth stays"),
        pytest.param(6, target(4, "GiveBack", OLD), None, KEPT_SIZE, id="nobody needs it any more"),
        pytest.param(4, target(3, "GiveBack", OLD), None, REMOVED, id="nobody needs what the owner wants"),
        pytest.param(6, target(4, "GiveBack"), None, Decision(), id="nobody needs it since a moment"),
        pytest.param(6, target(4, "GiveBack"), resize(5, "GiveBack"), Decision(), id="less is needed since a moment"),
        pytest.param(
            6,
            target(4, "GiveBack"),
            resize(2, "GiveBack"),
            Decision(writes=True, target=target(2, "GiveBack", NOW, message="why")),
            id="more is needed",
        ),
        pytest.param(
            6,
            target(8),
            resize(4, "GiveBack"),
            Decision(writes=True, target=target(4, "GiveBack", NOW, message="why")),
            id="given back instead of a growth",
        ),
        pytest.param(6, target(6), None, Decision(), id="idle growth stays"),
        pytest.param(4, target(4), None, REMOVED, id="what the owner wants needs no target"),
        pytest.param(
            4,
            target(6, since=NOW - CARRY_OUT_SECONDS - 1),
            resize(6),
            Decision(writes=True, late=True),
            id="not carried out in time",
        ),
    ],
)
def test_a_target_is_judged_anew(
    workers: int, written: Target | None, planned: Resize | None, decision: Decision
) -> None:
    assert targets.decide(elastic(workers, target=written), planned, (), NOW) == decision


def test_a_target_stays_while_a_waiting_job_needs_it() -> None:
    assert targets.decide(elastic(6, target=target(4, "GiveBack")), None, {KEY}, NOW) == Decision()


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.5, 2.0, 7.0]), st.none() | st.integers(1, 5)), max_size=40))
def test_target_to_give_back_is_neither_withdrawn_nor_raised_before_a_change_could_be_over(
    looks: list[tuple[float, int | None]],
) -> None:
    now, written = NOW, target(4, "GiveBack", NOW)
    for seconds, workers in looks:
        now += seconds
        planned = None if workers is None else resize(workers, "GiveBack")
        decision = targets.decide(elastic(6, target=written), planned, (), now)
        if not decision.writes:
            continue
        after = decision.target
        is_lower = after is not None and after.reason == "GiveBack" and after.workers < written.workers
        assert is_lower or now - written.since.timestamp() >= STANDS_SECONDS
        if after is None or after.reason != "GiveBack":
            return
        written = after


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(elastic(4, target=target(6), void=True), id="void"),
        pytest.param(elastic(4, target=target(6), change="Resizing"), id="a worker has begun"),
        pytest.param(elastic(4, target=target(6), view={"finished": True}), id="finished"),
        pytest.param(elastic(4, target=target(6), view={"admission": None, "suspended": True}), id="suspended"),
    ],
)
def test_some_targets_are_left_to_a_worker(view: Any) -> None:
    assert targets.decide(view, None, (), NOW) == Decision()


def test_a_target_to_give_back_has_the_digest_of_the_waiting_job_and_the_workers_that_leave_first() -> None:
    planned = resize(2, "GiveBack")._replace(for_key=HEAD, victims=("w-1", "w-3"))
    written = targets.decide(elastic(4), planned, (), NOW).target
    assert written is not None
    assert (written.recipient, written.victims) == (digest(HEAD), ("w-1", "w-3"))
    assert not any(part in written.model_dump_json() for part in (HEAD.name, HEAD.uid))


def test_a_job_that_waits_again_has_no_target() -> None:
    waiting = elastic(4, target=target(6), view={"admission": None})
    assert targets.decide(waiting, None, (), NOW) == REMOVED


@pytest.mark.parametrize(
    ("leaving", "planned", "size"),
    [(0, resize(4, "GiveBack"), 4), (1, resize(4, "GiveBack"), None), (0, resize(8), None)],
)
def test_a_growth_that_is_under_way_can_be_given_back(leaving: int, planned: Resize, size: int | None) -> None:
    job = elastic(6, idle=2, change="Resizing", leaving=leaving, target=target(6))
    decision = targets.decide(job, planned, (), NOW)
    assert (decision.target.workers if decision.target is not None else None) == size


@pytest.mark.parametrize(("planned", "size"), [(resize(2, "GiveBack"), 2), (resize(5, "GiveBack"), None), (None, None)])
def test_a_job_that_gives_back_already_is_asked_for_more_and_never_for_less(
    planned: Resize | None, size: int | None
) -> None:
    written = target(4, "GiveBack", OLD - CARRY_OUT_SECONDS, victims=("w-5",))
    job = elastic(6, idle=4, change="Resizing", leaving=2, target=written)
    planned = planned and planned._replace(victims=("w-3",))
    decision = targets.decide(job, planned, (), NOW)
    assert (decision.target.workers if decision.target is not None else None) == size
    assert decision.target is None or decision.target.victims == ("w-5", "w-3")
