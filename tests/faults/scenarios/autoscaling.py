"""Scenarios in which the coordinator resizes jobs: the jobs grow into idle room, and give this room back."""

from collections.abc import Mapping
from typing import Any

from crds import timestamps
from crds.api_resources import TORCHJOBS
from kube.api import Manifest
from tests.faults.api import ApiClient
from tests.faults.scenarios import people
from tests.faults.scenarios.resizes import ALL, BOTH, DONE, elastic, quota, want
from tests.faults.scenarios.scenario import NAMESPACE, Condition, Scenario, Step, task

SOON = {"idle_seconds": 1.0, "pool_patience": 2.0}
"""The settings of a coordinator that does not wait for long."""
EVERY = 20
"""How many seconds a job rests after a change of its size."""
HELD = {"hold": True}


def _auto(count: int, least: int = 1, **policy: Any) -> Manifest:
    """Return the spec of an elastic job that may grow to 4 workers by itself."""
    return elastic(count, least, **{"autoscale": "Idle", "resizeEverySeconds": EVERY} | policy)


def _rigid(count: int = 1, queue: str = "a", **policy: Any) -> Manifest:
    """Return the spec of a job that its owner holds back at first."""
    return {"torchTaskSpecs": {"Worker": task(count)}, **ALL, "queue": queue, "schedulingPolicy": {**HELD, **policy}}


def _come(*jobs: str) -> Step:
    """Return the step in which owners release these jobs, so that the jobs wait for room."""

    def step(cluster: ApiClient) -> None:
        for job in jobs:
            cluster.patch(TORCHJOBS, job, {"spec": {"schedulingPolicy": {"hold": False}}}, NAMESPACE)

    return step


def _leave(job: str, other: str) -> Step:
    """Return the step in which a job is deleted, and another job waits for room."""
    return _all_of(people.delete(job), _come(other))


def _all_of(*steps: Step) -> Step:
    def step(cluster: ApiClient) -> None:
        for each in steps:
            each(cluster)

    return step


def _allow(job: str) -> Step:
    """Return the step in which the owner of a job lets it grow by itself."""
    return people.change(job, torchElasticPolicy={"autoscale": "Idle"})


def _run(*names: str) -> Condition:
    """Return the condition that all of these jobs run."""
    return lambda jobs: all(people.phase(name, "Running")(jobs) for name in names)


def _has_given(job: str) -> Condition:
    """Return the condition that a job has been resized."""
    return lambda jobs: "resized" in _status(jobs, job)


def _went(*names: str) -> Condition:
    """Return the condition that all of these jobs have been admitted, or do not exist any more."""
    return lambda jobs: all(name not in jobs or _status(jobs, name).get("attempt", 0) > 0 for name in names)


def _gives_back(job: str) -> Condition:
    """Return the condition that a job is asked to give workers back, or that it has not grown, so that it will not be
    asked.
    """

    def holds(jobs: Mapping[str, Manifest]) -> bool:
        status = _status(jobs, job)
        return (status.get("target") or {}).get("reason") == "GiveBack" or "resized" not in status

    return holds


def _names_victims(job: str) -> Condition:
    return lambda jobs: bool((_status(jobs, job).get("scaling") or {}).get("victims"))


def _status(jobs: Mapping[str, Manifest], name: str) -> Mapping[str, Any]:
    return (jobs.get(name) or {}).get("status") or {}


def _is_to_grow(job: str) -> Condition:
    """Return the condition that a job has a target, which may not be granted yet."""
    return lambda jobs: "target" in _status(jobs, job)


def _has_grown_before(job: str, other: str) -> Condition:
    """Return the condition that a job has grown although another job still waits."""
    return lambda jobs: bool((_status(jobs, job).get("admission") or {}).get("idle")) and not _went(other)(jobs)


def _leave_a_target(job: str, count: int) -> Step:
    """Return the step in which the leader dies after it has written a target for which there is no room."""

    def step(cluster: ApiClient) -> None:
        people.depose(cluster)
        since = timestamps.format_time(cluster.now)
        target = {"workers": count, "reason": "Idle", "message": "", "since": since, "wish": 2}
        cluster.patch(TORCHJOBS, job, {"status": {"target": target}}, NAMESPACE, subresource="status")

    return step


def _timer(*, after: int = 10) -> Manifest:
    """Return the spec of a job without CPUs, in its own queue, that ends by itself after some seconds."""
    container = {"name": "torch", "image": "torch:1"}
    master = {"numTasks": 1, "template": {"spec": {"containers": [container]}}}
    return {"torchTaskSpecs": {"Master": master}, **ALL, "queue": "timer", "activeDeadlineSeconds": after}


def _worker_succeeds(task_type: str, *_: object) -> int | None:
    """Let workers succeed; the master of a timer runs until its deadline."""
    return 0 if task_type == "worker" else None


def _give(name: str, one: Manifest, two: Manifest, **about: Any) -> Scenario:
    """Return a scenario in which a job gives workers back to a job that comes later. The first job may grow again
    afterwards.
    """
    fields: dict[str, Any] = {
        "queues": {"a": quota(5)},
        "steps": ((people.workers("one", 4), _come("two")),),
        "sizes": {"one": one["torchTaskSpecs"]["Worker"]["numTasks"]},
        "idle": {"one": None},
        "until": _went("two"),
        "gentle": True,
        "settings": SOON,
        "patience": 10.0,
    }
    more = about.pop("more", {})
    ends = {"ends": dict.fromkeys(("one", "two", *more), "Succeeded")}
    return Scenario(name=name, jobs={"one": one, "two": two, **more}, **fields | ends | about)


COHORT = {"a": {**quota(3), "cohort": "c"}, "b": {**quota(2), "cohort": "c"}}
POOL = {"queues": {"a": {}, "b": {}}, "pool": "cpu=5"}

SCENARIOS = (
    Scenario(
        name="idlegrow",
        queues={"a": quota(5)},
        jobs={"one": _auto(2)},
        ends=DONE,
        sizes={"one": 4},
        idle={"one": 2},
        gentle=True,
        settings=SOON,
        patience=10.0,
    ),
    Scenario(
        name="idlepaid",
        queues={"a": quota(5)},
        jobs={"one": _auto(2)},
        ends=DONE,
        steps=((people.workers("one", 4), want("one", 3)),),
        sizes={"one": 4},
        idle={"one": 1},
        gentle=True,
        settings=SOON,
        patience=10.0,
    ),
    Scenario(
        name="idlejoinlate",
        queues={"a": quota(5)},
        jobs={"one": _auto(2, joinTimeoutSeconds=5)},
        ends=DONE,
        stalls=lambda task_type, index, before: task_type == "worker" and index == 3 and before == 0,
        sizes={"one": 2},
        idle={"one": None},
        until=_has_given("one"),
        gentle=True,
        settings=SOON,
        patience=80.0,
    ),
    Scenario(
        name="idlesuspend",
        queues={"a": quota(5)},
        jobs={"one": _auto(2)},
        ends=DONE,
        steps=(
            (people.workers("one", 4), people.change("one", suspend=True)),
            (people.phase("one", "Suspended"), people.change("one", suspend=False)),
        ),
        sizes={"one": 2},
        idle={"one": None},
        settings=SOON,
        patience=50.0,
    ),
    Scenario(
        name="idleinplace",
        queues={"a": quota(5)},
        jobs={"one": _auto(2, mode="InPlaceRestart"), "two": _rigid(2)},
        ends=BOTH,
        steps=((people.workers("one", 4), _come("two")),),
        sizes={"one": 2},
        idle={"one": None},
        until=_went("two"),
        gentle=True,
        settings={**SOON, "in_place": "local"},
        patience=80.0,
    ),
    _give("givequota", _auto(2), _rigid(2)),
    _give("givepriority", _auto(4), _rigid(2, priority=1)),
    _give("givecohort", _auto(2), _rigid(2, "b"), queues=COHORT),
    _give("givelent", _auto(4), _rigid(2, "b"), queues=COHORT),
    _give("givepool", _auto(2), _rigid(2, "b"), **POOL),
    _give(
        "giveshare",
        _auto(4),
        _rigid(2, "b"),
        queues={"a": {}, "b": {}, "c": {}},
        pool="cpu=6",
        more={"three": _rigid(1, "c")},
        steps=(
            (people.workers("one", 4), _come("two")),
            (people.phase("two", "Queued", "Admitted", "Running"), _come("three")),
        ),
        until=_has_given("one"),
    ),
    _give(
        "givebacklate",
        _auto(2),
        _rigid(2),
        ends=DONE,
        steps=((people.workers("one", 4), _come("two")), (_gives_back("one"), people.delete("two"))),
    ),
    _give(
        "givenone",
        _auto(2),
        _rigid(4),
        queues={"a": quota(5), "timer": {}},
        more={"timer": _timer()},
        ends={"one": "Succeeded", "two": "Succeeded", "timer": "Failed"},
        fate=_worker_succeeds,
        until=people.phase("timer", "Failed"),
        never=_names_victims("one"),
    ),
    _give(
        "thrash",
        _auto(2),
        _rigid(2),
        queues={"a": quota(5), "timer": {}},
        more={"three": _rigid(2), "timer": {**_timer(), "schedulingPolicy": HELD}},
        ends={"one": "Succeeded", "timer": "Failed"},
        fate=_worker_succeeds,
        patience=25.0,
        steps=(
            (people.workers("one", 4), _come("two")),
            (_went("two"), _leave("two", "timer")),
            (people.phase("timer", "Failed"), _come("three")),
            (_went("three"), people.delete("three")),
        ),
    ),
    Scenario(
        name="idlereserved",
        queues={"a": {}, "b": {}, "c": {}, "timer": {}},
        jobs={
            "one": _auto(2, autoscale="Off"),
            "two": _rigid(4, "b"),
            "three": {"torchTaskSpecs": {"Worker": task(3)}, **ALL, "queue": "c"},
            "four": _rigid(1, "c"),
            "first": {**_timer(), "schedulingPolicy": HELD},
            "last": {**_timer(), "schedulingPolicy": HELD},
        },
        pool="cpu=8",
        ends={"one": "Succeeded", "two": "Succeeded", "four": "Succeeded", "first": "Failed", "last": "Failed"},
        fate=_worker_succeeds,
        steps=(
            (_run("one", "three"), _come("two")),
            (people.phase("two", "Queued", "Admitted", "Running"), _come("four", "first")),
            (people.phase("first", "Failed"), _all_of(_allow("one"), _come("last"))),
            (people.phase("last", "Failed"), people.delete("three")),
        ),
        sizes={"one": 2},
        idle={"one": None},
        until=_went("two"),
        never=_has_grown_before("one", "two"),
        is_remembered=True,
        gentle=True,
        settings={
            **SOON,
            "cost": "jobs",
        },  # the small jobs overtake the large one
        patience=60.0,
    ),
    Scenario(
        name="leaderdies",
        queues={"a": quota(4)},
        jobs={"one": _auto(2)},
        ends=DONE,
        steps=((_is_to_grow("one"), _leave_a_target("one", 4)),),
        sizes={"one": 3},
        idle={"one": 1},
        gentle=True,
        settings=SOON,
        patience=80.0,
    ),
)
