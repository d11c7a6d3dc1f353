"""Holds that end with a written status."""

from datetime import timedelta
from typing import Any

import pytest

from crds.torchjob.status import TorchJobStatus
from reconcilers.plan import closed_holds
from tests.support.reconcilers.builders import ADMISSION, NOW, job
from tests.support.reconcilers.builders import status as status_of

CHARGE = ADMISSION["charge"]
RUNNING = status_of("Running", admission=ADMISSION | {"workers": 2, "running": "2026-01-02T03:01:00Z"})
LATER = NOW + timedelta(minutes=30)


def admitted(**change: Any) -> dict[str, Any]:
    """Return the status of the running job with another admission."""
    return RUNNING | {"admission": RUNNING["admission"] | change}


def holds(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the holds after a change of the status."""
    earlier, later = (TorchJobStatus.model_validate(status) for status in (before, after))
    found = closed_holds.after(earlier, later, LATER, job().spec)
    return [hold.manifest() for hold in found]


@pytest.mark.parametrize(
    ("after", "ended"),
    [
        (status_of("Suspended", admission=None), "Suspended"),
        (status_of("Succeeded", admission=ADMISSION), "Succeeded"),
        (admitted(workers=3, charge={**CHARGE, "pods": 4}), closed_holds.RESIZED),
        (admitted(charge={**CHARGE, "memory": 9}), closed_holds.CHARGED),
        (admitted(attempt=2), closed_holds.CHARGED),
    ],
)
def test_a_hold_ends_when_the_room_of_a_job_changes(after: dict[str, Any], ended: str) -> None:
    assert holds(RUNNING, after) == [
        {
            "number": 1,
            "queue": "team",
            "attempt": 1,
            "workers": 2,
            "charge": {"cpu": 3000, "pods": 3, "jobs": 1},
            "from": "2026-01-02T03:00:00Z",
            "running": "2026-01-02T03:01:00Z",
            "to": "2026-01-02T03:34:05Z",
            "ended": ended,
        }
    ]


def test_no_hold_ends_while_a_job_keeps_its_room_or_after_its_end() -> None:
    assert holds(RUNNING, admitted(grown=1, declined=2)) == []
    assert holds(status_of("Queued"), RUNNING) == []
    ended = status_of("Succeeded", admission=ADMISSION)
    assert holds(ended, ended | {"admission": None}) == []


def test_idle_growth_is_told_apart_until_it_is_paid() -> None:
    idle = admitted(idle=1)
    (hold,) = holds(idle, admitted(idle=0))
    assert (hold["ended"], hold["unpaid"]) == (closed_holds.PAID, {"cpu": 1000, "pods": 1})


def test_the_next_hold_of_an_attempt_begins_where_the_last_one_ended() -> None:
    (first,) = holds(RUNNING, admitted(workers=3))
    second = holds(admitted(workers=3) | {"holds": [first]}, status_of("Failed", admission=ADMISSION))[-1]
    assert (second["number"], second["from"]) == (2, first["to"])
    third = holds(admitted(attempt=2) | {"holds": [first]}, status_of("Failed", admission=ADMISSION))[-1]
    assert third["from"] == "2026-01-02T03:00:00Z", "another attempt begins at its admission"
