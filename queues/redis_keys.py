"""The names of every Redis key torchq owns, in one place.

One rule: all state is JSON or plain numbers under one prefix, may be lost at any moment, and is rebuilt from the
cluster.

Queues (written by the coordinator's scripts only):
    torchq:layout                string   number of the layout of these keys
    torchq:epoch                 string   epoch of the last rebuild; missing means: refuse everything but a rebuild
    torchq:revision              string   rises with every change of settings
    torchq:reservations          hash     job key -> JSON reservation {queue, kind, attempt, epoch, charge, pick, port}
    (the rest of the queues' keys: queues/lua/*.lua say what they hold)
Work (shared by coordinator and workers):
    torchq:work:*                see queues/lua/*.lua
"""

PREFIX = "torchq:"
EPOCH = f"{PREFIX}epoch"
LAYOUT = f"{PREFIX}layout"
LAYOUT_NUMBER = b"7"
"""Of the keys as they are described in queues/lua/lib/store.lua and mark.lua; under another one the store is lost."""
REBUILDING = f"{PREFIX}rebuilding"
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
DELAYED = f"{WORK}delayed"
LEASES = f"{WORK}leases"
WORKERS = f"{WORK}workers"
THREADS = f"{WORK}threads"
MADE = f"{WORK}made"
SETTLED = f"{WORK}settled:"
TALLY = f"{WORK}tally"
RUNS = "runs"
"""The field of the tally that counts runs given back."""

RQ_PREFIX = "rq:"
RQ_QUEUE = "torchq"
"""The name of our queue in RQ."""
RQ_JOB = f"{RQ_PREFIX}job:"
RQ_RESULTS = f"{RQ_PREFIX}results:"
RQ_WAITING = f"{RQ_PREFIX}queue:{RQ_QUEUE}"
RQ_INTERMEDIATE = f"{RQ_WAITING}:intermediate"
RQ_STARTED = f"{RQ_PREFIX}wip:{RQ_QUEUE}"
RQ_REGISTRIES = {
    state: f"{RQ_PREFIX}{state}:{RQ_QUEUE}" for state in ("failed", "finished", "deferred", "scheduled", "canceled")
}
"""What has left our queue in RQ without being run, or after it, by state."""

KEPT = frozenset(
    (
        *(REVISION, QUEUES, RULES, POOL, COUNTED, ACCOUNTS, CLOCK, OVERTAKEN),
        *(f"{PREFIX}version", f"{PREFIX}pick", f"{PREFIX}port"),
        *(WORKERS, THREADS, TALLY, f"{WORK}dispatches"),
    )
)
"""What outlives a rebuild: settings, accounts, counters, registrations."""

_KEYS = KEPT | {
    *(EPOCH, LAYOUT, REBUILDING, ENTRIES, RESERVATIONS, USAGE, COHORTS, SHARED, PORTS, f"{PREFIX}commit"),
    *(f"{PREFIX}{name}" for name in ("change", "changed", "settled")),
    *(RECORDS, READY_COUNT, TENANTS, DELAYED, LEASES, MADE),
}
_FAMILIES = (ORDER, READY, SETTLED)

_RQ_KEYS = frozenset(
    (
        *("rq:queues", "rq:workers", "rq:suspended", "rq:groups", f"rq:workers:{RQ_QUEUE}"),
        *(RQ_WAITING, RQ_INTERMEDIATE, RQ_STARTED, *RQ_REGISTRIES.values(), f"rq:clean_registries:{RQ_QUEUE}"),
    )
)
_RQ_FAMILIES = (
    *(RQ_JOB, RQ_RESULTS, "rq:worker:", "rq:execution:", "rq:executions:"),
    f"{RQ_INTERMEDIATE}:first_seen:",
)


def ours(name: str) -> bool:
    """Whether a key is under one of our prefixes: torchq's own or that of its RQ."""
    return name.startswith((PREFIX, RQ_PREFIX))


def known(name: str) -> bool:
    """Whether torchq or RQ on our behalf makes a key of this name."""
    return name in _KEYS or name in _RQ_KEYS or name.startswith((*_FAMILIES, *_RQ_FAMILIES))
