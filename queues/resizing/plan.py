"""The plan of resizes: growth into idle room, and workers that are given back to jobs that wait.

One rule: pure. A plan reads the picker's working copy after a round of picks, and changes nothing in it.
"""

from collections.abc import Iterable

from queues.picking.picker import Picker
from queues.resizing import growth, reasons
from queues.resizing.free_room import FreeRoom
from queues.resizing.giving_back import GivingBack
from queues.resizing.growth import Growth
from queues.resizing.room import Room
from queues.resizing.shares import Shares
from queues.resizing.values import NO_IDLE_ROOM, ElasticJob, IdleRoom, Plan
from queues.rules import PickRules
from queues.values import Snapshot

_PICKS = 10_000
"""The most picks that a dry run makes before it plans."""


def plan(
    picker: Picker,
    jobs: Iterable[ElasticJob],
    now: float,
    idle_since: IdleRoom = NO_IDLE_ROOM,
    *,
    with_kept: bool = False,
) -> Plan:
    """Return who grows and who gives back now. `idle_since` is that of the plan before; `with_kept` asks for the
    reasons of the jobs that are not resized.
    """
    queues = picker.queues(now)
    known = [job for job in jobs if job.queue in queues]
    room = Room(picker, queues, known)
    shares = Shares(room, picker.cost)
    giving_back = GivingBack(picker, queues, known, room, shares, now)
    giving_back.serve()
    resizes, needed = giving_back.resizes, giving_back.needed()
    asked = {resize.key for resize in resizes}
    growing = [job for job in known if growth.may_grow(job) and job.key not in asked]
    grown = Growth(FreeRoom(picker, queues, room), shares, now, idle_since)
    if growing:
        resizes += grown.grow(growing, {name for name, queue in queues.items() if not queue.spec.open})
    return Plan(
        resizes=resizes,
        claims=giving_back.claims,
        hasten=giving_back.hasten,
        needed=needed,
        patient_until=giving_back.patient_until,
        kept=reasons.kept(known, {resize.key for resize in resizes}, grown.kept) if with_kept else (),
        idle_since=grown.idle_since,
    )


def dry_run(
    snapshot: Snapshot, rules: PickRules, jobs: Iterable[ElasticJob], now: float, idle_since: IdleRoom = NO_IDLE_ROOM
) -> Plan:
    """Return the plan for a whole snapshot, as after the round of picks that it allows, with all reasons."""
    picker = Picker(snapshot, rules)
    picker.picks(now, _PICKS)
    return plan(picker, jobs, now, idle_since, with_kept=True)
