"""The ends of jobs that held room, as the coordinator has seen them."""

import pytest

from coordinator.cache.noted_jobs import MOST_ENDS, SeenEnd, SeenEnds
from crds.keys import JobKey
from tests.support.clock import START, Clock
from tests.support.coordinator.builders import KEY, admission, job

HELD = job(admission=admission(), phase="Running")
ENDED = job(admission=admission(), phase="Succeeded", finished=True)


@pytest.fixture
def ends(clock: Clock) -> SeenEnds:
    return SeenEnds(clock)


def test_an_end_has_the_times_at_which_pods_and_job_were_seen(ends: SeenEnds, clock: Clock) -> None:
    ends.note_pods_gone(KEY)
    clock.step(2)
    ends.note(HELD, ENDED)
    found = ends.take(KEY)
    assert found == SeenEnd(pods=START, job=START + 2)
    assert (found.seen, found.settled) == (START, START + 2)
    assert ends.take(KEY) is None, "an end is measured once"


def test_pods_may_go_after_their_job_has_ended(ends: SeenEnds, clock: Clock) -> None:
    ends.note(HELD, ENDED)
    clock.step(3)
    ends.note_pods_gone(KEY)
    assert ends.take(KEY) == SeenEnd(pods=START + 3, job=START)


def test_only_the_last_pods_of_a_job_count(ends: SeenEnds, clock: Clock) -> None:
    ends.note_pods_gone(KEY)  # a restart
    clock.step(60)
    ends.note_pods_gone(KEY)
    ends.note(HELD, ENDED)
    assert ends.take(KEY) == SeenEnd(pods=START + 60, job=START + 60)


def test_a_job_without_pods_is_settled_when_its_end_is_seen(ends: SeenEnds) -> None:
    ends.note(HELD, ENDED)
    found = ends.take(KEY)
    assert found is not None
    assert (found.seen, found.settled) == (START, START)


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, ENDED), (HELD, HELD), (ENDED, ENDED), (HELD, None), (job(), job(finished=True))],
    ids=["not seen before", "runs on", "ended before", "deleted", "held nothing"],
)
def test_other_changes_are_no_end(ends: SeenEnds, before: object, after: object) -> None:
    ends.note_pods_gone(KEY)
    ends.note(before, after)  # type: ignore[arg-type]
    assert ends.take(KEY) is None


def test_the_number_of_kept_ends_is_bounded(ends: SeenEnds) -> None:
    for number in range(MOST_ENDS + 5):
        ends.note_pods_gone(JobKey("team", "job", str(number)))
    assert len(ends._ends) == MOST_ENDS
