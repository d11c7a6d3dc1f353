"""The causes of the alerts, made on a real installation.

One rule: a cause is over at the end of its block, and everything that it began ends with the block.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from tests.chaos.arena import COORDINATORS
from tests.monitoring.doctor_runs import NAME
from tests.monitoring.installation import FAIL, HANG, NAMESPACE, RECORDER, WORKERS, Installation
from tests.monitoring.load import LONG, QUICK, TEAM_A, TEAM_C, Load

Make = Callable[[Installation, Load], AbstractContextManager[object]]
MANY = 60
"""More jobs than the threshold of TorchqBacklog in this run."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """The cause that makes one alert fire."""

    alert: str
    text: str
    make: Make
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels that the alert must have, beside the namespace."""
    lingers: bool = False
    """Whether the alert has such a long range that the run continues before the alert has resolved."""
    again: Callable[[Installation], object] | None = None
    """The action that is repeated until the alert fires."""


@contextlib.contextmanager
def _lowered_quota(site: Installation, load: Load) -> Iterator[None]:
    try:
        site.torchq("queue", "set-quota", TEAM_A, "cpu=1")
        yield
    finally:
        site.torchq("queue", "set-quota", TEAM_A, "cpu=3")


@contextlib.contextmanager
def _starved(site: Installation, load: Load) -> Iterator[None]:
    """Let a job of one queue need more CPUs than the jobs of other queues leave free."""
    try:
        load.submit("large", TEAM_C, LONG, cpu="6")
        yield
    finally:
        for number in range(6):
            load.delete(f"long-a-{number}")


@contextlib.contextmanager
def _unschedulable(site: Installation, load: Load) -> Iterator[None]:
    try:
        load.submit_unschedulable("nowhere")
        yield
    finally:
        load.delete("nowhere")


@contextlib.contextmanager
def _stray_key(site: Installation, load: Load) -> Iterator[None]:
    """Write a foreign key between the keys of torchq. `torchq doctor --fix` removes this key."""
    with contextlib.closing(site.redis()) as connection:
        connection.set("torchq:stray", "1")
    try:
        yield
    finally:
        site.try_torchq("doctor", "--fix", "--settle", "1")


@contextlib.contextmanager
def _stopped_workers(site: Installation, load: Load) -> Iterator[None]:
    with site.stopped(WORKERS):
        load.submit_many(MANY)
        yield
    load.delete_many(MANY)


@contextlib.contextmanager
def _evicting_redis(site: Installation, load: Load) -> Iterator[None]:
    """Let Redis evict keys when its memory is full."""
    with contextlib.closing(site.redis()) as connection:
        connection.config_set("maxmemory", "1gb")
        connection.config_set("maxmemory-policy", "allkeys-lru")
        try:
            yield
        finally:
            connection.config_set("maxmemory-policy", "noeviction")
            connection.config_set("maxmemory", "0")


GROUPS: tuple[tuple[Cause, ...], ...] = (
    (
        Cause(
            alert="TorchqMixedVersions",
            text="a worker of another layout stays",
            make=lambda site, _: site.old_workers(),
        ),
        Cause(
            alert="TorchqJobsSentBack",
            text="a job's pod fits no node",
            make=_unschedulable,
            labels={"queue": QUICK, "reason": "NotRunningInTime"},
            lingers=True,
        ),
        Cause(
            alert="TorchqQueueOverQuota",
            text="a quota is lowered below its usage",
            make=_lowered_quota,
            labels={"queue": TEAM_A, "resource": "cpu"},
        ),
    ),
    (
        Cause(alert="TorchqQueueStarved", text="the pool is full", make=_starved, labels={"queue": TEAM_C}),
        Cause(
            alert="TorchqDisagree",
            text="a foreign key is in Redis",
            make=_stray_key,
            labels={"cronjob": NAME},
        ),
    ),
    (Cause(alert="TorchqNoLeader", text="kill both coordinators", make=lambda site, _: site.down(*COORDINATORS)),),
    (
        Cause(
            alert="TorchqNoLeader",
            text="coordinators are cut off from Redis",
            make=lambda site, _: site.without_redis(*COORDINATORS),
        ),
    ),
    (
        Cause(
            alert="TorchqLeaderStuck",
            text="the control loop hangs",
            make=lambda site, _: site.spoiled_leader(HANG),
        ),
    ),
    (
        Cause(
            alert="TorchqLeaderStuck",
            text="the control loop fails each time",
            make=lambda site, _: site.spoiled_leader(FAIL),
        ),
    ),
    (Cause(alert="TorchqNoWorkers", text="kill all workers", make=lambda site, _: site.down(WORKERS)),),
    (Cause(alert="TorchqBacklog", text="SIGSTOP of all workers", make=_stopped_workers),),
    (Cause(alert="TorchqRedisDown", text="kill Redis", make=lambda site, _: site.down("redis")),),
    (Cause(alert="TorchqRedisDown", text="SIGSTOP of Redis", make=lambda site, _: site.stopped("redis")),),
    (
        Cause(
            alert="TorchqWorkerClock",
            text="a worker's clock is ten minutes ahead",
            make=lambda site, _: site.late_workers(),
        ),
    ),
    (
        Cause(
            alert="TorchqHistoryBehind",
            text="the database of the history is locked",
            make=lambda site, _: site.locked_history(),
        ),
    ),
    (
        Cause(
            alert="TorchqHistoryBehind",
            text="kill the recorder",
            make=lambda site, _: site.down(RECORDER),
            labels={"cause": "nothing-scraped"},
        ),
    ),
    (Cause(alert="TorchqRedisUnfit", text="Redis evicts keys", make=_evicting_redis),),
    (
        Cause(
            alert="TorchqReconcileErrors",
            text="the API server refuses workers",
            make=lambda site, _: site.refused(WORKERS),
        ),
    ),
    (Cause(alert="TorchqApiErrors", text="kill the API server", make=lambda site, _: site.down("apiserver")),),
    (
        Cause(
            alert="TorchqRebuilding",
            text="FLUSHALL after each rebuild",
            make=lambda _site, _load: contextlib.nullcontext(),
            lingers=True,
            again=lambda site: site.lose_queues(),
        ),
    ),
)
"""The causes that are made at the same time, in the order of the run."""


def expected_labels(cause: Cause) -> dict[str, str]:
    """Return the labels by which the alert of a cause is known."""
    return {"namespace": NAMESPACE, **cause.labels}
