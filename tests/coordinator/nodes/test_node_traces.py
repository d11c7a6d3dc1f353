"""Whatever order events come in, late and doubled: the places are those that are made anew from what is there. If some
are lost, they are once a turn of second looks is over."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.cache.watches import Watches
from coordinator.leader.node_places import NodePlaces
from crds.keys import JobKey
from crds.node_requirements import Taint, place_condition
from queues.placement.gangs import Gang, Members, NodeSet, Shape
from queues.placement.node_room import NodeRoom, bits
from queues.values import Reservation
from tests.support.clock import Clock
from tests.support.coordinator.builders import admission, job, node, pod
from tests.support.coordinator.shown_nodes import Nodes, Pods, Shown

NAMES = [f"n{number}" for number in range(4)]
JOBS = [JobKey("team", f"job-{number}", f"uid-{number}") for number in range(3)]
CONDITIONS = [
    place_condition(spec)
    for spec in (
        {},
        {"nodeSelector": {"zone": "a"}},
        {"nodeSelector": {"zone": "b"}, "tolerations": [{"operator": "Exists"}]},
        {"tolerations": [{"key": "mine", "operator": "Exists"}]},
    )
]
GANG = Gang((Members(Shape((("cpu", 1000), ("pods", 1))), 2),))
TAINTS = ((), (Taint("mine", "", "NoSchedule"),))


class Trace:
    """A cluster that changes by chance. The notes of its changes wait until they are delivered."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.shown = Shown(Nodes({name: node(name=name) for name in NAMES[:2]}), Pods())
        self.held: dict[JobKey, Reservation] = {}
        self._notes: list[Callable[[], None]] = []
        self._made = 0

    def change(self) -> None:
        """Change one node or one pod."""
        self.random.choice([self._add_pod, self._add_pod, self._end_pod, self._change_node, self._drop_node])()

    def reservations(self, keys: Sequence[JobKey] | None = None) -> dict[JobKey, Reservation]:
        return {key: each for key, each in self.held.items() if keys is None or key in keys}

    def pick_or_free(self) -> JobKey:
        """Change whether the store has a reservation of a job, and return its key."""
        key = self.random.choice(JOBS)
        if self.held.pop(key, None) is None:
            self.held[key] = Reservation(key=key, queue="a", attempt=1, epoch=1, charge={}, pick=len(self.held))
        return key

    def lose(self) -> None:
        """Lose some notes for ever."""
        self._notes = self.random.sample(self._notes, len(self._notes) // 2)

    def deliver(self, part: float) -> None:
        """Note a part of the changes in any order, some of them twice."""
        self.random.shuffle(self._notes)
        count = round(len(self._notes) * part)
        now, self._notes = self._notes[:count], self._notes[count:]
        for note in [*now, *self.random.sample(now, len(now) // 2)]:
            note()

    def _add_pod(self) -> None:
        self._made += 1
        name, job = self.random.choice([*NAMES, "nobody-knows"]), self.random.choice([None, *JOBS])
        added = pod(name=f"pod-{self._made}", job=job, node=name, demand={"cpu": self.random.choice([500, 1000])})
        self.shown.pods.found.append(added)
        self._notes.append(lambda: self.shown.node_changes.note_pod(None, added))

    def _end_pod(self) -> None:
        if self.shown.pods.found:
            ended = self.random.choice(self.shown.pods.found)
            self.shown.pods.found.remove(ended)
            self._notes.append(lambda: self.shown.node_changes.note_pod(ended, None))

    def _change_node(self) -> None:
        name = self.random.choice(NAMES)
        before = self.shown.nodes.found.get(name)
        after = replace(
            before or node(name=name),
            ready=self.random.random() < 0.7,
            labels={"zone": self.random.choice("ab")},
            taints=self.random.choice(TAINTS),
            allocatable={"cpu": self.random.choice([0, 4000, 8000]), "pods": 10},
        )
        self.shown.nodes.found[name] = after
        self._notes.append(lambda: self.shown.node_changes.note_node(before, after))

    def _drop_node(self) -> None:
        name = self.random.choice(NAMES)
        if (before := self.shown.nodes.found.pop(name, None)) is not None:
            self._notes.append(lambda: self.shown.node_changes.note_node(before, None))


def seen(kept: NodePlaces, there: Iterable[str]) -> object:
    """Return what can be asked of the places, by the names of the nodes that are there."""
    places = kept.places
    assert places is not None

    def names(room: NodeRoom, nodes: NodeSet) -> set[str]:
        return {room.names[index] for index in bits(nodes & ((1 << len(room.names)) - 1))}

    rooms = places.room, places.empty
    free = [{name: {k: v for k, v in room.free(room.index(name)).items() if v} for name in there} for room in rooms]
    shapes = [Shape((("cpu", 1000), ("pods", 1)), where) for where in CONDITIONS]
    fits = [[room.total(one) for one in shapes] for room in rooms]
    allowed = [[names(room, room.allowed(where)) for where in CONDITIONS] for room in rooms]
    return free, fits, allowed, names(places.room, places.usable)


@given(st.integers(0, 2**32))
@settings(deadline=None)
def test_events_late_doubled_and_in_any_order_end_in_what_is_there(seed: int) -> None:
    random = Random(seed)
    trace, clock = Trace(random), Clock()
    kept = NodePlaces(cast("Watches", trace.shown), dict, clock)
    kept.refresh()
    seen(kept, ())
    for _ in range(random.randrange(30)):
        trace.change()
        trace.deliver(random.random())
        if random.random() < 0.5:
            kept.refresh()
            seen(kept, ())  # what is asked is remembered
    trace.deliver(1.0)
    kept.refresh()
    anew = NodePlaces(cast("Watches", trace.shown), dict, clock)
    anew.refresh()
    there = sorted(trace.shown.nodes.found)
    assert seen(kept, there) == seen(anew, there)


@given(st.integers(0, 2**32))
@settings(deadline=None)
def test_what_was_overlooked_is_known_once_a_turn_is_over(seed: int) -> None:
    random = Random(seed)
    trace, clock = Trace(random), Clock()
    trace.shown.jobs |= {key: job(key=key, gang=GANG, admission=admission()) for key in JOBS}
    kept = NodePlaces(cast("Watches", trace.shown), trace.reservations, clock)
    kept.refresh()
    made = kept.places
    assert made is not None
    for _ in range(random.randrange(30)):
        trace.change()
        if random.random() < 0.3:
            key = trace.pick_or_free()
            if random.random() < 0.5:
                made.take(str(key), GANG) if key in trace.held else made.release(str(key))
        trace.lose()
        trace.deliver(random.random())
        kept.refresh()
        seen(kept, ())
    trace.lose()
    for _ in range(40):
        clock.step(20)
        kept.refresh()
    assert kept.places is made, "nothing was made anew"
    anew = NodePlaces(cast("Watches", trace.shown), trace.reservations, clock)
    anew.refresh()
    there = sorted(trace.shown.nodes.found)
    assert jobs_in(kept) == jobs_in(anew)
    for each in (kept, anew):
        for key in JOBS:
            each.places.release(str(key))  # type: ignore[union-attr]  # where pods without nodes have places may differ
    assert seen(kept, there) == seen(anew, there)


def jobs_in(kept: NodePlaces) -> object:
    """Return what is known of the jobs. Each has places for the pods that miss one, if there is room."""
    places = kept.places
    assert places is not None
    one = GANG.members[0].shape
    for key, each in places.jobs.items():
        assert each.places() == each.missing() or (key in places.lacking and places.room.total(one) == 0)
    return {
        key: (each.reserved, {(places.room.names[node], demand): n for (node, demand), n in each.bound.items()})
        for key, each in places.jobs.items()
    }
