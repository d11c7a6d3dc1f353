"""The plan of resizes: growth into idle room, and workers that are given back to jobs that wait.

One rule: pure. A plan reads the picker's working copy after a round of picks, and changes nothing in it.
"""

from collections.abc import Collection, Iterable, Mapping

from crds.keys import JobKey
from queues.picking.picker import Picker
from queues.placement.places import Places
from queues.resizing import idle_growth
from queues.resizing.free_room import FreeRoom
from queues.resizing.givers import Shares
from queues.resizing.giving_back import GivingBack
from queues.resizing.idle_growth import Growth
from queues.resizing.room import Room
from queues.resizing.values import NO_IDLE_ROOM, ElasticJob, IdleRoom, Kept, KeptCode, Plan
from queues.rules import PickRules
from queues.values import Snapshot

_SENTENCES: Mapping[KeptCode, str] = {
    "Off": "its autoscale is Off, and no waiting job needs its idle growth",
    "Leaving": "some of its workers are on their way out",
    "BelowWish": "it has fewer workers than its owner wants: further ones come by its queue's order",
    "AtMost": "it has all the workers that it may have",
    "QueueHeld": "its queue is on hold",
    "NoRoom": "no step fits into room that is free of every claim",
    "NoNodes": "the workers of a step find no nodes with room that is free of every claim",
    "JobsFit": "a waiting job fits into the room, and goes first",
    "Resting": "its last resize is too recent",
    "NotIdleYet": "the room has not been idle for long enough, or other jobs are less fulfilled",
}


_PICKS = 10_000
"""The most picks that a dry run makes before it plans."""


def reasons_kept(
    jobs: Iterable[ElasticJob], resized: Collection[JobKey], codes: Mapping[JobKey, KeptCode]
) -> tuple[Kept, ...]:
    """Return why each job that is not resized is not. `codes` are the reasons of jobs that could grow one day."""
    found = ((job.key, codes.get(job.key) or _obstacle(job)) for job in jobs if job.key not in resized)
    return tuple(Kept(key, code, _SENTENCES.get(code, "")) for key, code in found)


def _obstacle(job: ElasticJob) -> KeptCode:
    """Return the reason for which a job does not grow, whatever room is free."""
    if not job.autoscale:
        return "Off"
    if job.leaving:
        return "Leaving"
    return "BelowWish" if job.workers < job.wanted else "AtMost"


def plan(
    picker: Picker,
    jobs: Iterable[ElasticJob],
    now: float,
    idle_since: IdleRoom = NO_IDLE_ROOM,
    seen: frozenset[str] = frozenset(),
    *,
    with_kept: bool = False,
) -> Plan:
    """Return which jobs grow and which jobs give room back now. `idle_since` and `seen` are those of the previous
    plan; `with_kept` asks for the reasons of the jobs that are not resized.
    """
    queues = picker.queues(now)
    known = [job for job in jobs if job.queue in queues]
    room = Room(picker, queues, known)
    shares = Shares(room, picker.pool.prices)
    giving_back = GivingBack(picker, queues, known, room, shares, now, seen)
    giving_back.serve()
    resizes, needed = giving_back.resizes, giving_back.needed()
    asked = {resize.key for resize in resizes}
    growing = [job for job in known if idle_growth.may_grow(job) and job.key not in asked]
    grown = Growth(FreeRoom(picker, queues, room), shares, now, idle_since)
    if growing:
        resizes += grown.grow(growing, {name for name, queue in queues.items() if not queue.spec.open})
    return Plan(
        resizes=resizes,
        claims=giving_back.claims,
        hasten=giving_back.hasten,
        needed=needed,
        nodes=giving_back.promised,
        patient_until=giving_back.patient_until,
        kept=reasons_kept(known, {resize.key for resize in resizes}, grown.kept) if with_kept else (),
        idle_since=grown.idle_since,
        seen=giving_back.seen,
    )


def dry_run(
    snapshot: Snapshot,
    rules: PickRules,
    jobs: Iterable[ElasticJob],
    now: float,
    idle_since: IdleRoom = NO_IDLE_ROOM,
    places: Places | None = None,
) -> Plan:
    """Return the plan for a whole snapshot, as after the round of picks that it allows, with all reasons. Picks take
    `places`."""
    picker = Picker(snapshot, rules, places=places)
    picker.picks(now, _PICKS)
    return plan(picker, jobs, now, idle_since, with_kept=True)
