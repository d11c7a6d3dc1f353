"""The owner of a store: one installation writes to the store, and another installation cannot write."""

import pytest

from queues import errors
from queues.installation import Installation
from queues.redis.connection import Connection
from queues.store import QueueStore
from tests.queues.conftest import Place, RedisPlace
from tests.support.clock import Clock
from tests.support.queues.builders import entry, reservation

OURS, THEIRS = Installation("cluster-1", "kube-system"), Installation("cluster-2", "kube-system")
MOVED = Installation("cluster-1", "torchq")


def claimed(place: Place, installation: Installation) -> QueueStore:
    store = place.open()
    store.claim(installation)
    return store


def content(place: RedisPlace) -> dict[bytes, bytes]:
    return {name: place.client.dump(name) for name in place.client.keys("*")}


def test_first_rebuild_makes_the_owner_and_others_are_refused(place: Place) -> None:
    first = claimed(place, OURS)
    assert first.problem() == ""
    first.rebuild(1, [reservation("held", cpu=1)], [entry("waits")])
    assert first.problem() == claimed(place, OURS).problem() == place.open().problem() == ""
    for other in (THEIRS, MOVED):
        second = claimed(place, other)
        for part in ("belongs to another installation (cluster cluster-1, Lease in namespace kube-system)", str(other)):
            assert part in second.problem()
        with pytest.raises(errors.ForeignStore):
            second.rebuild(9, [], [])
        with pytest.raises(errors.ForeignStore):
            second.prepare(9, [])
    assert first.epoch() == 1
    assert first.reservations()


def test_owner_outlives_a_reset_and_not_a_loss(place: Place) -> None:
    store = claimed(place, OURS)
    store.rebuild(1, [], [])
    store.forget(1)
    assert claimed(place, THEIRS).problem()
    place.lose()
    claimed(place, THEIRS).rebuild(2, [], [])
    assert store.problem()


def test_foreign_store_of_another_layout_is_left_alone(client: Connection) -> None:
    place = RedisPlace(client, Clock())
    claimed(place, THEIRS).rebuild(1, [reservation("held", cpu=1)], [])
    client.set("torchq:layout", "1")
    before = content(place)
    store = claimed(place, OURS)
    assert store.problem()
    with pytest.raises(errors.ForeignStore, match="belongs to another installation"):
        store.rebuild(9, [], [])
    assert content(place) == before


def test_unreadable_owner_is_another_installation(client: Connection) -> None:
    client.set("torchq:owner", "{]")
    store = claimed(RedisPlace(client, Clock()), OURS)
    assert "its name is not readable" in store.problem()
    with pytest.raises(errors.ForeignStore):
        store.rebuild(1, [], [])
