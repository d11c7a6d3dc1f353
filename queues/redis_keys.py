"""The names of all Redis keys that torchq owns.

One rule: all state is JSON or plain numbers under one prefix, may be lost at any moment, and is rebuilt from the
cluster.

Queues (written by the coordinator's scripts only):
    torchq:layout                string   number of the layout of these keys
    torchq:epoch                 string   epoch of the last rebuild; if missing, the store accepts only a rebuild
    torchq:revision              string   rises with every change of settings
    torchq:reservations          hash     job key -> JSON reservation {queue, kind, attempt, epoch, charge, pick, port,
                                          size, grown, idle, paid, gained, nodes}
    torchq:owner                 string   JSON {cluster, lease_namespace}: the installation that alone writes here
    torchq:probe                 string   written to see whether the server takes writes (queues/lua/store/probe.lua)
    (the other keys of the queues: see queues/lua/lib/store.lua)
Work (shared by coordinator and workers):
    torchq:work:*                see queues/lua/lib/mark.lua
Reports of training code (any coordinator; nothing rebuilds them):
    torchq:reports:<job key>     see queues/lua/reports/keep.lua
"""

import re

PREFIX = "torchq:"
EPOCH = f"{PREFIX}epoch"
LAYOUT = f"{PREFIX}layout"
LAYOUT_NUMBER = b"12"
"""The number of the layout of keys in queues/lua/lib/store.lua and mark.lua. Under another number the store is lost."""
OWN_LAYOUT = int(LAYOUT_NUMBER)
REBUILDING = f"{PREFIX}rebuilding"
OWNER = f"{PREFIX}owner"
PROBE = f"{PREFIX}probe"
REVISION = f"{PREFIX}revision"
QUEUES = f"{PREFIX}queues"
RULES = f"{PREFIX}rules"
COHORTS = f"{PREFIX}cohorts"
SHARED = f"{PREFIX}shared"
POOL = f"{PREFIX}pool"
COUNTED = f"{PREFIX}counted"
ENTRIES = f"{PREFIX}entries"
ORDER = f"{PREFIX}order:"
RESERVATIONS = f"{PREFIX}reservations"
USAGE = f"{PREFIX}usage"
PORTS = f"{PREFIX}ports"
ACCOUNTS = f"{PREFIX}accounts"
CLOCK = f"{PREFIX}clock"
OVERTAKEN = f"{PREFIX}overtaken"

WORK = f"{PREFIX}work:"
RECORDS = f"{WORK}records"
READY = f"{WORK}ready:"
READY_COUNT = f"{WORK}ready"
TENANTS = f"{WORK}tenants"
LANES = (f"{TENANTS}:ends", TENANTS, f"{TENANTS}:tells")
"""The lists of lanes, by the kinds of runs (`queues.work_kinds.KINDS`)."""
DELAYED = f"{WORK}delayed"
LEASES = f"{WORK}leases"
MEMBERS = f"{WORK}members"
WORKERS = f"{WORK}workers"
"""Registrations of workers of the layouts before 10. They are only read, to name these workers."""
THREADS = f"{WORK}threads"
MADE = f"{WORK}made"
SETTLED = f"{WORK}settled:"
BRIEF = f"{WORK}brief:"
TALLY = f"{WORK}tally"
HELD = f"{WORK}held"
RECENT = f"{WORK}recent"
REPORTS = f"{PREFIX}reports:"
RUNS = "runs"
"""The field of the tally that counts finished runs."""

RQ_PREFIX = "rq:"
RQ_QUEUE = f"torchq-{OWN_LAYOUT}"
"""The name of torchq's queue in RQ. Each layout has its own, so no worker of another layout takes a batch from it."""
RQ_JOB = f"{RQ_PREFIX}job:"
RQ_RESULTS = f"{RQ_PREFIX}results:"
RQ_WAITING = f"{RQ_PREFIX}queue:{RQ_QUEUE}"
RQ_INTERMEDIATE = f"{RQ_WAITING}:intermediate"
RQ_STARTED = f"{RQ_PREFIX}wip:{RQ_QUEUE}"
RQ_REGISTRIES = {
    state: f"{RQ_PREFIX}{state}:{RQ_QUEUE}" for state in ("failed", "finished", "deferred", "scheduled", "canceled")
}
"""State -> the registry of jobs that have left torchq's queue in RQ, run or not."""

PRESERVED = frozenset(
    (
        *(OWNER, REVISION, QUEUES, RULES, POOL, COUNTED, ACCOUNTS, CLOCK, OVERTAKEN),
        *(f"{PREFIX}version", f"{PREFIX}pick", f"{PREFIX}port"),
        *(MEMBERS, WORKERS, THREADS, TALLY, f"{WORK}dispatches"),
    )
)
"""The keys that outlive a rebuild: settings, accounts, counters, registrations."""

_KEYS = PRESERVED | {
    *(EPOCH, LAYOUT, REBUILDING, PROBE, ENTRIES, RESERVATIONS, USAGE, COHORTS, SHARED, PORTS, f"{PREFIX}commit"),
    *(f"{PREFIX}{name}" for name in ("change", "changed", "settled")),
    f"{PREFIX}none",  # a key that never exists: a check deletes it, which fails on a server that takes no writes
    *(RECORDS, READY_COUNT, *LANES, DELAYED, LEASES, HELD, RECENT, MADE),
}
_FAMILIES = (ORDER, READY, SETTLED, BRIEF, REPORTS)

_RQ_KEYS = frozenset(("rq:queues", "rq:workers", "rq:suspended", "rq:groups"))
_RQ_FAMILIES = (RQ_JOB, RQ_RESULTS, "rq:worker:", "rq:execution:", "rq:executions:")
_KINDS = "|".join(("queue", "wip", "workers", "clean_registries", *RQ_REGISTRIES))
_RQ_OF_LAYOUT = re.compile(rf"rq:(?P<kind>{_KINDS}):(?P<queue>torchq(-[0-9]+)?)(:intermediate(:first_seen:.*)?)?")
"""Matches the keys that RQ keeps for the queue of one layout. Before layout 10, the name had no number."""


def is_owned(name: str) -> bool:
    """Return whether a key has one of the prefixes of torchq or of its RQ."""
    return name.startswith((PREFIX, RQ_PREFIX))


def is_documented(name: str) -> bool:
    """Return whether torchq, or RQ for torchq, makes a key of this name."""
    known = name in _KEYS or name in _RQ_KEYS or name.startswith((*_FAMILIES, *_RQ_FAMILIES))
    return known or _RQ_OF_LAYOUT.fullmatch(name) is not None


def has_batches_of_other_layout(name: str) -> bool:
    """Return whether RQ keeps batches under this key for the queue of another layout."""
    found = _RQ_OF_LAYOUT.fullmatch(name)
    return found is not None and found["queue"] != RQ_QUEUE and found["kind"] not in ("workers", "clean_registries")
