"""The counts of pods with which a task has enough members, as a table."""

import pytest

from gang.values import TaskMembers


@pytest.mark.parametrize(
    ("wanted", "minimum", "is_running", "succeeded", "enough"),
    [
        (4, 4, 4, 0, True),
        (4, 4, 3, 0, False),
        (4, 4, 3, 1, True),  # one pod succeeded early
        (4, 2, 2, 0, True),
        (4, 2, 1, 0, False),
        (4, 2, 0, 2, True),
        (2, 4, 2, 0, True),  # a minimum above the size means all pods
        (1, 1, 0, 0, False),
    ],
)
def test_task_has_enough_when_its_minimum_runs_or_succeeded(
    wanted: int, minimum: int, is_running: int, succeeded: int, enough: bool
) -> None:
    task = TaskMembers(wanted=wanted, minimum=minimum, running=is_running, succeeded=succeeded)
    assert task.enough is enough


def test_task_is_done_only_when_all_its_pods_succeeded() -> None:
    assert TaskMembers(wanted=2, minimum=1, running=0, succeeded=2).done
    assert not TaskMembers(wanted=2, minimum=1, running=1, succeeded=1).done
