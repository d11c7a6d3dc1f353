"""Alike jobs that are picked one after the other: their pods get the nodes that a look at all nodes gives each."""

from collections import Counter
from random import Random

import pytest

from queues.placement.gangs import Gang, Members, NodeSet
from queues.placement.node_room import NodeRoom
from queues.placement.places import Places
from tests.support.queues.clusters import room_of, shape

SHAPES = (shape(gpu=1), shape(gpu=1, cpu=2), shape("rack", gpu=2), shape(cpu=3))
MIXED = Gang((Members(SHAPES[0], 1), Members(SHAPES[3], 1)))
GANGS = (
    MIXED,
    *(Gang((Members(each, count),)) for each in SHAPES for count in (1, 2, 5)),
    Gang((Members(SHAPES[0], 1),), further=SHAPES[0]),
    Gang((Members(SHAPES[0], 2),), preferred="zone"),
    Gang((Members(SHAPES[0], 0),)),
)
NODE = {"cpu": 12, "gpu": 6, "pods": 8}


class _Twins:
    """Places, and others that look at all nodes for each pick."""

    def __init__(self) -> None:
        self.sets: dict[str, NodeSet] = {"rack": 0b0110, "": -1}
        self.both = tuple(self._places() for _ in range(2))
        exact = self.both[1]
        exact.room.place_in_row = lambda *_: None  # type: ignore[method-assign]
        exact.fits = lambda gang, units=0: (  # type: ignore[method-assign,assignment,misc]
            exact.domain(gang, gang.with_further(units), ~exact.kept) is not None
        )
        self.keys: list[str] = []

    def _places(self) -> Places:
        rooms = (NodeRoom(lambda where: self.sets[where], lambda _: {"a": 0b0011, "b": 0b1100}) for _ in range(2))
        places = Places(*rooms, lambda *_: None)
        places.names_nodes = True
        for number in range(4):
            for room in (places.room, places.empty):
                room.set_capacity(room.index(f"n{number}"), NODE)
        return places

    def step(self, chance: Random, last: Gang) -> None:
        """Let the same happen to both: mostly a pick of the same gang as the last time."""
        kind = chance.choice(
            ("pick",) * 8 + ("grow", "release", "bind", "bind", "capacity", "sets", "node", "keep", "ask", "ask")
        )
        key, node = f"job{len(self.keys)}", chance.randrange(5)
        old = chance.choice(self.keys) if self.keys else key
        capacity = {name: chance.randint(0, 9) for name in NODE}
        if kind == "sets":
            self.sets["rack"] = chance.choice((-1, chance.randrange(16)))
        if kind in ("pick", "grow"):
            self.keys.append(key)
        assert len({str(self._change(each, kind, key, old, node, capacity, last)) for each in self.both}) == 1

    def _change(
        self, places: Places, kind: str, key: str, old: str, node: int, capacity: dict[str, int], gang: Gang
    ) -> object:
        room = places.room
        match kind:
            case "pick" | "grow":
                units = int(kind == "grow")
                fits = places.fits(gang, units)
                return fits, fits and places.take(key, gang, units)
            case "release":
                return places.release(old)
            case "bind":
                return places.follow(old, Counter({(node % 4, SHAPES[0].demand): 1}), None, None)
            case "capacity":
                return room.set_capacity(node % 4, capacity)
            case "sets":
                return room.forget_sets()
            case "node":
                return room.index(f"n{node}")
            case "keep":
                places.kept = 0 if places.kept else 1 << node
        return places.fits(MIXED), room.total(SHAPES[0]), room.total(SHAPES[1], 0b0101)

    def shown(self) -> list[object]:
        """Return what each of them shows, and a copy of it."""
        return [_shown(each) for places in self.both for each in (places.copy(), places)]


def _shown(places: Places) -> object:
    room = places.room
    free = [room.free(node) for node in range(len(room.names))]
    return free, [(room.total(one), dict(room.takes(one))) for one in SHAPES], dict(room.copy().takes(SHAPES[0]))


def test_alike_picks_get_what_a_look_at_all_nodes_gives_whatever_happens_between() -> None:
    for seed in range(600):
        chance, twins = Random(seed), _Twins()
        gang = chance.choice(GANGS)
        for _ in range(chance.randint(1, 50)):
            gang = gang if chance.random() < 0.9 else chance.choice(GANGS)
            twins.step(chance, gang)
            shown = twins.shown() if chance.random() < 0.1 else []
            assert shown == shown[:1] * len(shown), f"seed {seed}"
        shown, (first, second) = twins.shown(), twins.both
        assert shown == shown[:1] * 4, f"seed {seed}"
        assert {key: job.waiting for key, job in first.jobs.items()} == {
            key: job.waiting for key, job in second.jobs.items()
        }, f"seed {seed}"
        assert (first.unbound, first.lacking) == (second.unbound, second.lacking), f"seed {seed}"


def test_a_look_at_all_nodes_is_taken_once_for_a_row_of_picks(monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places(room_of([NODE] * 9), room_of([NODE] * 9), lambda *_: None)
    looks: list[object] = []
    looked = NodeRoom._fits_of
    monkeypatch.setattr(NodeRoom, "_fits_of", lambda room, one: looks.append(one) or looked(room, one))
    one = Gang((Members(SHAPES[0], 1),))
    for number in range(18):
        assert places.fits(one)
        places.take(f"job{number}", one)
    assert len(looks) <= 2 * 3, "the picks fill three nodes"
    assert [places.room.free(node)["gpu"] for node in range(4)] == [0, 0, 0, 6]
