"""Queries that a command answers itself, from the Redis that its user names.

One rule: the answers are those of a coordinator (`coordinator.query.queries`), without the facts that only the
coordinator's caches know.
"""

from collections.abc import Callable

from coordinator.query.queries import StoreQueries
from coordinator.reports.report_store import RedisReports
from queues.installation import Installation
from queues.redis import connection
from queues.redis.location import Location
from queues.rules import PickRules
from queues.storage import stats
from queues.storage.redis_store import RedisStore


def connect(location: Location, rules: PickRules, own: Callable[[], Installation | None]) -> StoreQueries:
    """Return queries about the queues in a Redis. `own` returns the installation of the cluster, if it is known."""
    redis = connection.connect(location, client_name="torchq-reader")
    return StoreQueries(RedisStore(redis), lambda: stats.read(redis, own()), rules, report_reader=RedisReports(redis))
