"""What `local down` prints about pods that still run or end."""

import pytest

from coordinator.local import remaining_pods
from embedded.node.leftovers import RunningPod
from embedded.node.shutdown.shutdown_record import EndingPod


def pods(**jobs: int) -> list[RunningPod]:
    found = [(job, number) for job, count in jobs.items() for number in range(count)]
    return [RunningPod(f"{job}{number}", "team", f"{job}-{number}", job.strip("_")) for job, number in found]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (pods(digits=1), "1 pod of job team/digits"),
        (pods(digits=4), "4 pods of job team/digits"),
        (pods(words=1, digits=2), "3 pods (2 of job team/digits, 1 of job team/words)"),
        (pods(digits=2, _=1), "3 pods (2 of job team/digits)"),
        (pods(_=2), "2 pods"),
        ([RunningPod("u")], "1 pod"),
        (
            pods(a=7, b=6, c=5, d=4, e=3, f=2, g=1),
            "28 pods (7 of job team/a, 6 of job team/b, 5 of job team/c, 4 of job team/d, 3 of job team/e, "
            "others of 2 more jobs)",
        ),
    ],
)
def test_pods_are_counted_by_job(found: list[RunningPod], said: str) -> None:
    assert remaining_pods.format_count(found) == said


@pytest.mark.parametrize(
    ("untils", "said"),
    [
        ([None], "1 pod of job team/digits still ends"),
        ([1060.0, 1030.5], "2 pods of job team/digits still end, 60 s at most"),
        ([1030.5, None], "2 pods of job team/digits still end, 31 s at most"),
        ([999.0], "1 pod of job team/digits still ends; the rest is being killed"),
    ],
)
def test_progress_shows_the_longest_remaining_time(untils: list[float | None], said: str) -> None:
    found = [EndingPod("team", f"digits-{number}", "digits", until) for number, until in enumerate(untils)]
    assert remaining_pods.format_progress(found, 1000.0) == said
