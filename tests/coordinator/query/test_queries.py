"""Queries of a coordinator whose Redis holds the queues of another installation."""

from functools import partial

import fakeredis
import pytest

from coordinator.query.queries import StoreQueries
from queues.errors import ForeignStore
from queues.installation import Installation
from queues.redis import fitness
from queues.rules import PickRules
from queues.storage.redis_store import RedisStore
from tests.coordinator.query.test_documents import VITALS
from tests.support.queues.builders import entry, key, spec

OURS, THEIRS = Installation("cluster-1", "kube-system"), Installation("cluster-2", "kube-system")


def test_queues_of_another_installation_are_not_shown() -> None:
    client = fakeredis.FakeStrictRedis()
    theirs = RedisStore(client)
    theirs.claim(THEIRS)
    theirs.rebuild(1, [], [entry("waits")])
    theirs.configure([spec("a")], None)
    queries = StoreQueries(RedisStore(client), lambda: VITALS, PickRules(), check_owner=partial(check, client))
    asked = [
        queries.queues,
        queries.snapshot,
        partial(queries.queue, "a"),
        partial(queries.next, 1),
        partial(queries.job, key("waits")),
        partial(queries.suppose, entry("more")),
    ]
    for ask in asked:
        with pytest.raises(ForeignStore, match="belongs to another installation"):
            ask()
    assert queries.status(), "the status has the problem beside the figures"
    client.delete("torchq:owner")
    assert [queue["metadata"]["name"] for queue in queries.queues()] == ["a"]


def check(client: fakeredis.FakeStrictRedis) -> None:
    fitness.check_owner(client, OURS)
