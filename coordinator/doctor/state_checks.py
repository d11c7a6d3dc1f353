"""Compares the state of cluster, queues and RQ for the same jobs.

One rule: changes in flight disagree, too. Only a finding that a second reading some seconds later repeats is a
disagreement (`confirm`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from coordinator.cache.views import JobView
from coordinator.doctor import work_checks
from coordinator.doctor.findings import Finding
from coordinator.doctor.inspection import Inspection
from coordinator.doctor.work_checks import Found, is_under_way
from coordinator.routing import gang_queues, held_charges, queue_specs, rebuilt_state
from coordinator.routing.rebuilt_state import RebuiltState
from crds import timestamps
from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts
from crds.tenantqueue import TenantQueueSpec
from queues import limits, order, redis_keys
from queues.installation import foreign
from queues.registrations import StoreIdentity, describe_refused, find_refusal
from queues.values import Entry, Kind, QueueSpec, Reservation


def confirm(first: Iterable[Finding], second: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that two readings have in common."""
    return tuple(sorted(set(first) & set(second)))


def compare(inspection: Inspection) -> tuple[Finding, ...]:
    """Return all disagreements within one reading."""
    checks: list[Callable[[Inspection], Found]] = [_leadership, _objects, _redis, _keys, *work_checks.CHECKS]
    if foreign(inspection.store.owner, inspection.cluster.installation) or inspection.store.unfit:
        # The other findings are not about this cluster, or follow from the fault of the server.
        checks = [_leadership, _objects, _redis]
    elif inspection.store.epoch:
        checks += [_epochs, _reservations, _usage, _ports, _entries, _growths, _places, _settings, _pods]
    else:
        checks += [_store_loss, _pods]
    return tuple(sorted({finding for check in checks for finding in check(inspection)}))


def _leadership(inspection: Inspection) -> Found:
    lease = inspection.cluster.lease
    if lease is None:
        yield Finding("no-lease", "Lease", "no coordinator has ever led here")
    elif not lease.holder:
        yield Finding("no-leader", "Lease", "no coordinator leads")
    elif inspection.cluster.now - _seconds(lease.renewed) > lease.seconds:
        message = f"{lease.holder} holds the Lease and has not renewed it since {lease.renewed}"
        yield Finding("lease-silent", "Lease", message)
    alive = [member.registration for member in inspection.work.members if member.until > inspection.work.now]
    owner = inspection.store.owner.decode(errors="replace")
    store = StoreIdentity(redis_keys.OWN_LAYOUT, inspection.store.epoch, owner)
    if all(find_refusal(worker, store) for worker in alive):
        yield Finding("no-workers", "workers", "no worker that takes work is registered, so nothing is reconciled")
    for code, is_of_clock in (("wrong-clock", True), ("idle-workers", False)):
        for sentence in describe_refused((each for each in alive if bool(each.clock) is is_of_clock), store):
            yield Finding(code, "workers", sentence)


def _redis(inspection: Inspection) -> Found:
    if inspection.store.unfit:
        yield Finding("unfit-redis", "Redis", inspection.store.unfit)
    if reason := foreign(inspection.store.owner, inspection.cluster.installation):
        yield Finding("foreign-store", "Redis", reason)


def _objects(inspection: Inspection) -> Found:
    for process, skipped in inspection.cluster.skipped.items():
        yield Finding("skipped-object", process, f"skips {skipped}")
    for subject, why in inspection.cluster.unreadable.items():
        yield Finding("unreadable-object", subject, why)
    for node in sorted(inspection.cluster.slow_nodes):
        yield Finding("slow-restarts", f"node {node}", "its kubelet backs off before it starts containers again")
    for key, why in inspection.cluster.split_gangs.items():
        yield Finding("split-gang", str(key), why)
    yield from inspection.cluster.gangs.findings(inspection.cluster.jobs, inspection.cluster.rules)
    for queue, why in inspection.cluster.ineffective.items():
        yield Finding("ineffective-limit", f"queue {queue}", f"a limit has another effect than it says: {why}")
    for key, job in inspection.cluster.jobs.items():
        if job.invalid and not (job.finished or job.deleting or is_under_way(inspection, key)):
            yield Finding("invalid-job", str(key), "the job is invalid, and its status does not say so")
    yield from inspection.cluster.strays.findings(frozenset(inspection.cluster.jobs))


def _store_loss(inspection: Inspection) -> Found:
    if inspection.store.rebuilding:
        message = f"a rebuild under epoch {inspection.store.rebuilding} has begun and has not ended"
        yield Finding("rebuild-unfinished", "queues", message)
    else:
        yield Finding("store-lost", "queues", "Redis holds no epoch: the queues are lost")


def _epochs(inspection: Inspection) -> Found:
    lease = inspection.cluster.lease
    epoch = inspection.store.epoch
    if lease is not None and lease.epoch != epoch:
        yield Finding("epoch-differs", "queues", f"Redis is at epoch {epoch}, the Lease at {lease.epoch}")
    for key, job in inspection.cluster.jobs.items():
        if job.admission and job.admission.epoch > epoch:
            message = f"admitted under epoch {job.admission.epoch}, Redis is at epoch {epoch}"
            yield Finding("epoch-differs", str(key), message)


def _reservations(inspection: Inspection) -> Found:
    """Compare the reservations with the charges that a rebuild would make now."""
    stored = inspection.store.reservations
    expected = {reservation.key: reservation for reservation in _rebuilt_state(inspection).reservations}
    for key in sorted(expected.keys() - stored.keys()):
        message = f"the cluster shows attempt {expected[key].attempt}, Redis charges nothing"
        yield Finding("missing-reservation", str(key), message)
    for key in sorted(stored.keys() - expected.keys()):
        charged = f"charged {_text(stored[key].charge)} to queue {stored[key].queue} (attempt {stored[key].attempt})"
        state = _state(inspection.cluster.jobs.get(key))
        yield Finding("orphan-reservation", str(key), f"{charged}, but {state} and no pod occupies")
    for key in sorted(expected.keys() & stored.keys()):
        yield from _reservation(inspection, stored[key], expected[key])


def _rebuilt_state(inspection: Inspection, ceilings: Mapping[str, Amounts] | None = None) -> RebuiltState:
    """Return the result of a rebuild now. If Redis has a queue without an object, queues are implicit.

    `ceilings` are the most that a job of each queue can ever have; None if the ceilings are not known.
    """
    rules, specs = inspection.cluster.rules, inspection.cluster.specs
    created = {**dict.fromkeys(specs, TenantQueueSpec()), **rules.queues}
    rules = replace(rules, queues=created, implicit=not inspection.store.specs.keys() <= specs.keys())
    rules = replace(rules, ceilings=ceilings or {})
    return rebuilt_state.compute(
        inspection.cluster.jobs.values(),
        inspection.cluster.pods,
        inspection.store.reservations,
        rules,
        inspection.cluster.now,
    )


def _reservation(inspection: Inspection, stored: Reservation, expected: Reservation) -> Found:
    job = inspection.cluster.jobs.get(stored.key)
    if job is not None and job.admission is not None:
        if differs := _differences(stored, expected, "queue attempt charge port size grown idle"):
            yield Finding("wrong-reservation", str(stored.key), f"Redis has {differs}")
        if held_charges.is_unwritten_growth(job.admission, stored) and not is_under_way(inspection, stored.key):
            message = f"has grown to {_text(stored.charge)}, but no work item tells a worker to write it"
            yield Finding("unseen-pick", str(stored.key), message)
    elif expected is stored and not is_under_way(inspection, stored.key):
        message = f"picked (attempt {stored.attempt}), but no work item tells a worker to admit it"
        yield Finding("unseen-pick", str(stored.key), message)


def _usage(inspection: Inspection) -> Found:
    """Compare the counted usage with the sum of the reservations."""
    store = inspection.store
    sums: dict[str, dict[str, int]] = {}
    total: dict[str, int] = {}
    for reservation in store.reservations.values():
        charge = amounts.select(reservation.charge, store.counted)
        amounts.increase(sums.setdefault(reservation.queue, {}), charge)
        amounts.increase(total, charge)
    for queue in sorted(sums.keys() | store.usage.keys()):
        yield from _leak(f"queue {queue}", store.usage.get(queue, {}), sums.get(queue, {}))
    yield from _leak("pool", store.pool_usage, total)
    if store.counted is not None and (
        missing := limits.usage_resources(store.specs.values(), store.pool) - store.counted
    ):
        yield Finding("wrong-settings", "usage", f"Redis does not count the usage of {', '.join(sorted(missing))}")


def _leak(subject: str, used: Amounts, summed: Amounts) -> Found:
    leaked = {name: amount for name, amount in amounts.subtract(used, summed).items() if amount}
    if leaked:
        message = f"Redis counts more (or less) than the reservations take: {_text(leaked)}"
        yield Finding("leaked-charge", subject, message)


def _ports(inspection: Inspection) -> Found:
    reserved, noted = sorted(inspection.store.reservations.items()), inspection.store.ports
    for key, reservation in reserved:
        port = reservation.port
        if port and noted.get(port) != key:
            yield Finding("wrong-port", str(key), f"port {port} is noted as held by {noted.get(port) or 'no job'}")
    for port in sorted(noted.keys() - {reservation.port for _, reservation in reserved}):
        yield Finding("wrong-port", str(noted[port]), f"port {port} is held without a reservation")


def _entries(inspection: Inspection) -> Found:
    """Compare the entries with the entries that the cluster's waiting jobs should have."""
    store = inspection.store
    expected = _of_kind("admit", _rebuilt_state(inspection).entries)
    entries = _of_kind("admit", store.entries.values())
    for key in sorted(expected.keys() - entries.keys()):
        if inspection.cluster.jobs[key].reason == gang_queues.CODE and inspection.cluster.rules.gang_rooms is None:
            continue  # the leader may read the queues of the gang scheduler, and this account may not
        yield Finding("missing-entry", str(key), f"waits for queue {expected[key].queue} but is in no queue")
    for key in sorted(entries.keys() - expected.keys()):
        state = "it holds a reservation" if key in store.reservations else _state(inspection.cluster.jobs.get(key))
        yield Finding("stray-entry", str(key), f"waits in queue {entries[key].queue}, but {state}")
    for key in sorted(expected.keys() & entries.keys()):
        yield from _entry(entries[key], expected[key])


def _growths(inspection: Inspection) -> Found:
    """Compare the entries of admitted jobs with the workers that these jobs wait for.

    The leader leaves out entries that could never fit. A growth that fits the pool of now must have an entry; only
    growths that would fit a pool without limits may have an entry.
    """
    store = inspection.store
    ceilings = queue_specs.ceilings(store.specs.values(), store.pool)
    due = _of_kind("grow", _rebuilt_state(inspection, ceilings).entries)
    possible = _of_kind("grow", _rebuilt_state(inspection).entries)
    entries = _of_kind("grow", store.entries.values())
    for key in sorted(due.keys() - entries.keys()):
        yield Finding("missing-entry", str(key), f"waits for more workers in queue {due[key].queue} but is in no queue")
    for key in sorted(entries.keys() - possible.keys()):
        queue = entries[key].queue
        yield Finding("stray-entry", str(key), f"waits for more workers in queue {queue}, but the job wants none")
    for key in sorted(entries.keys() & possible.keys()):
        yield from _entry(entries[key], possible[key])


def _of_kind(kind: Kind, entries: Iterable[Entry]) -> dict[JobKey, Entry]:
    return {entry.key: entry for entry in entries if entry.kind == kind}


def _entry(stored: Entry, expected: Entry) -> Found:
    fields = "queue priority submitted attempt demand size grown idle returning"
    if differs := _differences(stored, expected, fields):
        yield Finding("wrong-entry", str(stored.key), f"its entry has {differs}")


def _differences(stored: object, expected: object, fields: str) -> str:
    """Return which of some fields differ, and how; empty if no field differs."""
    values = ((name, getattr(stored, name), getattr(expected, name)) for name in fields.split())
    return ", ".join(f"{name} {_text(has)} instead of {_text(due)}" for name, has, due in values if has != due)


def _places(inspection: Inspection) -> Found:
    """Compare the orders of the queues with the entries."""
    store = inspection.store
    for key, entry in sorted(store.entries.items()):
        aging = store.specs.get(entry.queue, QueueSpec(name=entry.queue)).aging_seconds
        score, expected = store.places.get(entry.queue, {}).get(key), order.score(entry, aging)
        if score is None:
            yield Finding("misplaced-entry", str(key), f"has an entry but no place in queue {entry.queue}")
        elif score != expected:
            message = f"its score in queue {entry.queue} is {score!r} instead of {expected!r}"
            yield Finding("misplaced-entry", str(key), message)
    for queue, places in sorted(store.places.items()):
        for key in sorted(places):
            entry_of = store.entries.get(key)
            if entry_of is None or entry_of.queue != queue:
                yield Finding("misplaced-entry", str(key), f"has a place in queue {queue} but no entry for it")
    for queue, stray in sorted(store.stray_places.items()):
        for key in sorted(stray):
            yield Finding("misplaced-entry", str(key), f"has a place in queue {queue} that is not its entry's")


def _settings(inspection: Inspection) -> Found:
    for name, expected in sorted(inspection.cluster.specs.items()):
        stored = inspection.store.specs.get(name)
        if stored != expected:
            yield Finding("wrong-settings", f"queue {name}", f"Redis has {stored or 'nothing'} instead of {expected}")


def _pods(inspection: Inspection) -> Found:
    for pod in inspection.cluster.pods:
        if pod.job is None or not pod.occupies or pod.deleting or is_under_way(inspection, pod.job):
            continue
        job, name = inspection.cluster.jobs.get(pod.job), f"{pod.namespace}/{pod.name}"
        if job is None:
            yield Finding("orphan-pod", name, f"occupies for job {pod.job}, which is gone")
        elif job.admission is None or job.admission.attempt != pod.attempt:
            admitted = f"is at attempt {job.admission.attempt}" if job.admission else "is not admitted"
            message = f"occupies for attempt {pod.attempt} of job {pod.job}, which {admitted}"
            yield Finding("foreign-attempt-pod", name, message)


def _keys(inspection: Inspection) -> Found:
    for fault in (*inspection.store.faults, *inspection.work.faults):
        yield Finding("broken-key", fault.where, fault.why)
    for name in inspection.store.unknown:
        yield Finding("unknown-key", name, "is under torchq's or RQ's prefix, but neither makes such a key")
    if foreign_keys := inspection.store.foreign:
        message = f"{len(foreign_keys)} or more keys that do not belong to torchq"
        yield Finding("foreign-keys", foreign_keys[0], message)


def _state(job: JobView | None) -> str:
    if job is None:
        return "the job is gone"
    descriptions = {
        "is being deleted": job.deleting,
        f"has ended ({job.phase})": job.finished,
        "is invalid": job.invalid,
        "is admitted": job.admission is not None,
        "is cancelled": job.cancelled,
        "is suspended": job.suspended,
        "is on hold": job.held,
    }
    return f"the job {next((text for text, true in descriptions.items() if true), 'waits')}"


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}={value[name]}" for name in sorted(value)) + "}"
    return str(value)


def _seconds(timestamp: str) -> float:
    """Parse a timestamp; 0 for an invalid timestamp, which counts as never renewed."""
    try:
        return timestamps.parse_seconds(timestamp)
    except ValueError:
        return 0.0
