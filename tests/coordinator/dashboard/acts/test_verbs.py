"""Which changes a page offers, by the state of the job or queue."""

from typing import Any

import pytest

from coordinator.dashboard.acts import buttons
from kube.api import Manifest
from tests.coordinator.dashboard.jobs.scene import job

ADMITTED = {"admission": {"id": "1", "time": "2026-01-01T00:00:00Z"}}


def offered(item: Manifest | None) -> list[str]:
    return [element.id.removeprefix("act-") for element in buttons.of_job(item, may_act=True)]


@pytest.mark.parametrize(
    ("item", "verbs"),
    [
        (job(), ["hold", "bump", "suspend", "cancel"]),
        (job(schedulingPolicy={"hold": True}), ["resume", "suspend", "cancel"]),
        (job(suspend=True), ["resume", "cancel"]),
        (job(status={"queue": {"parked": True}}), ["resume", "hold", "bump", "suspend", "cancel"]),
        (job(cancel=True), []),
        (job(status={"phase": "Succeeded"}), []),
        (job(status={"phase": "Failed"}), []),
        (None, []),
        ({"metadata": {"name": "odd", "namespace": "a", "uid": "u"}, "spec": 3, "status": []}, []),
    ],
    ids=[
        "waits",
        "held",
        "suspended",
        "parked",
        "is cancelled",
        "succeeded",
        "failed",
        "deleted",
        "written past checks",
    ],
)
def test_a_job_is_offered_what_makes_sense_for_it(item: Any, verbs: list[str]) -> None:
    assert offered(item) == verbs


def test_a_job_that_holds_room_is_not_offered_a_place_in_the_queue() -> None:
    found = offered(job(status={"phase": "Running", **ADMITTED}))
    assert found == ["suspend", "cancel"]


@pytest.mark.parametrize(("policy", "verb"), [("None", "pause"), ("Hold", "resume"), ("HoldAndDrain", "resume")])
def test_a_queue_is_offered_to_pause_or_to_resume(policy: str, verb: str) -> None:
    item = {"metadata": {"name": "a"}, "spec": {"stopPolicy": policy}}
    assert [each.id for each in buttons.of_queue(item, may_act=True)] == ["act-weight", f"act-{verb}"]
    assert buttons.of_queue(item, may_act=False) == ()


def test_a_button_leads_to_the_very_job_that_the_page_shows() -> None:
    [button, *_] = buttons.of_job(job("a&b"), may_act=True)
    assert button.values[1] == "/act?verb=hold&kind=job&namespace=team&name=a%26b&uid=uid-a%26b"
    assert buttons.of_job(job(), may_act=False) == ()
