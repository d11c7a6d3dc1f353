"""The queues of a simulation, in memory or in a Redis with the real scripts. Every call passes a gate.

One rule: this module decides nothing; the product's own stores do all the work.
"""

from collections.abc import Callable
from typing import Any, Protocol

import orjson
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ResponseError

from crds.keys import JobKey
from queues import errors, redis_keys
from queues.dispatch import redis_work
from queues.dispatch.redis_work import RedisWork
from queues.redis import codec
from queues.redis.scripts import Script
from queues.storage import redis_store
from queues.storage.redis_store import RedisStore
from queues.store import QueueStore, StoreSettings
from queues.values import Reservation
from queues.work import Lease
from tests.doubles.memory_content import Content
from tests.doubles.memory_store import MemoryStore
from tests.doubles.memory_work import MemoryWork

Gate = Callable[..., Any]
"""gate(label, effect, lost=..., repeatable=...) carries out a call, or puts a fault in its place."""

_ONCE = frozenset({"commit", "begin"})
"""Calls that the stores in memory cannot recognise as repeated. The Redis scripts recognise them by an id."""


class Place(Protocol):
    """The data of one store and one work queue, which several processes share."""

    def open(self, gate: Gate) -> tuple[QueueStore, Any]:
        """Return the clients of a process for the store and the work queue."""

    def pop(self, gate: Gate) -> list[Lease]:
        """Return the next batch, as RQ passes it to a worker."""

    def lose(self) -> None:
        """Delete all data."""

    def epoch(self) -> int:
        """Return the epoch of the store; 0 while the store is lost."""

    def reservations(self) -> dict[JobKey, Reservation]:
        """Return all reservations, whatever the epoch."""

    def growths(self) -> set[JobKey]:
        """Return the admitted jobs that wait for more workers."""

    def turns(self) -> object:
        """Return the state that decides which queue has the next turn: the accounts of the queues and their clock.
        Tests compare this state.
        """

    def remains(self) -> list[str]:
        """Return the names under which data about jobs is still stored. After the end of all jobs there must be
        none.
        """

    def due(self) -> float | None:
        """Return when the next delayed key or lease becomes due; None if there is neither."""


class Door:
    """A proxy of an object: every method call passes the gate, like a call over a network."""

    def __init__(self, name: str, inner: Any, gate: Gate, lost: Callable[[str], Exception]) -> None:
        self._name, self._inner, self._gate, self._lost = name, inner, gate, lost

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._inner, verb)

        def called(*arguments: Any, **named: Any) -> Any:
            return self._gate(
                f"{self._name}.{verb}",
                lambda: method(*arguments, **named),
                about=arguments,
                lost=self._lost,
                repeatable=verb not in _ONCE,
            )

        return called


def unreachable(message: str) -> Exception:
    """Return the error of a lost answer of the store."""
    return errors.StoreUnreachable(message)


class MemoryPlace:
    """A place with the store and the work queue in memory."""

    def __init__(self, clock: Callable[[], float], ports: tuple[int, int] | None) -> None:
        self.content = Content()
        self._settings = StoreSettings(ports)
        reader = MemoryStore(lambda *_: None, content=self.content)
        self.work = MemoryWork(
            clock,
            reader.epoch,
            lambda key: self.content.reservations.get(key),  # noqa: PLW0108
            raise_charge=reader.raise_charge,
        )

    def open(self, gate: Gate) -> tuple[QueueStore, Any]:
        store = MemoryStore(self.work.mark, self._settings, self.content, self.work.may_have_pods)
        door: Any = Door("store", store, gate, unreachable)
        return door, Door("work", self.work, gate, unreachable)

    def pop(self, gate: Gate) -> list[Lease]:
        return gate("rq.pop", self.work.pop, lost=unreachable, repeatable=False) if self.work._batches else []

    def lose(self) -> None:
        fresh = Content()
        for name in Content.__slots__:
            setattr(self.content, name, getattr(fresh, name))
        self.work.clear()

    def epoch(self) -> int:
        return self.content.epoch

    def reservations(self) -> dict[JobKey, Reservation]:
        return self.content.reservations

    def growths(self) -> set[JobKey]:
        return {key for key, waiting in self.content.entries.items() if waiting.entry.kind == "grow"}

    def turns(self) -> object:
        return dict(self.content.accounts), self.content.clock

    def remains(self) -> list[str]:
        content, work = self.content, self.work
        kept = {
            "entry": content.entries,
            "reservation": content.reservations,
            "usage": {queue: used for queue, used in content.usage.items() if used},
            "pool usage": content.pool_usage,
            "work": work._records,
            "batch": work._batches,
        }
        found = [f"{what}: {each}" for what, all_of_it in kept.items() for each in all_of_it]
        return found + ([f"leased: {work._leased}"] if work._leased else [])

    def due(self) -> float | None:
        return min((each.due for each in self.work._records.values() if each.state != "ready"), default=None)


class RedisPlace:
    """A place in a Redis, real or fake."""

    def __init__(self, client: Any, clock: Callable[[], float], ports: tuple[int, int] | None) -> None:
        self._client = client
        self._clock = clock
        self._settings = StoreSettings(ports)
        client.flushall()

    def open(self, gate: Gate) -> tuple[QueueStore, Any]:
        line: Any = _Line(self._client, gate)
        return RedisStore(line, self._settings, self._clock), RedisWork(line, clock=self._clock)

    def pop(self, gate: Gate) -> list[Lease]:
        if not self._client.llen(redis_keys.RQ_WAITING):
            return []
        leases: list[Lease] = gate("rq.pop", self._pop, lost=unreachable, repeatable=False)
        return leases

    def _pop(self) -> list[Lease]:
        job = self._client.lpop(redis_keys.RQ_WAITING)
        if job is None:
            return []
        data = orjson.loads(self._client.hget(b"rq:job:" + job, "data"))
        self._client.delete(b"rq:job:" + job)
        return [(JobKey.parse(key), token) for key, token in data[2][0]]

    def lose(self) -> None:
        self._client.flushall()

    def epoch(self) -> int:
        return int(self._client.get("torchq:epoch") or 0)

    def reservations(self) -> dict[JobKey, Reservation]:
        kept = self._client.hgetall("torchq:reservations")
        keys = {JobKey.parse(key.decode()): text for key, text in kept.items()}
        return {key: codec.decode_reservation(key, text) for key, text in keys.items()}

    def growths(self) -> set[JobKey]:
        texts = self._client.hgetall("torchq:entries")
        return {JobKey.parse(key.decode()) for key, text in texts.items() if b'"kind":"grow"' in text}

    def turns(self) -> object:
        return self._client.hgetall("torchq:accounts"), self._client.get("torchq:clock")

    def remains(self) -> list[str]:
        lasting = {"epoch", "layout", "revision", "queues", "rules", "cohorts", "pool", "port", "pick", "version",
                   "counted", "accounts", "clock", "overtaken", "commit", "change", "changed", "settled",
                   "owner", "work:members", "work:dispatches", "work:tally"}  # fmt: skip
        names = {key.decode().removeprefix("torchq:") for key in self._client.keys("torchq:*")} - lasting
        empty = {"work:ready"} if int(self._client.get("torchq:work:ready") or 0) == 0 else set()
        shared = map(orjson.loads, self._client.hvals("torchq:shared"))
        empty |= {"shared"} if not any(any(used.values()) for used in shared) else set()
        return sorted(name for name in names - empty if not self._passes(name))

    def _passes(self, name: str) -> bool:
        """Return whether the key expires soon. The key expires by the server's clock, which does not follow the
        simulated clock.
        """
        return name.startswith("work:settled:") and 0 < self._client.ttl(f"torchq:{name}") <= 10

    def due(self) -> float | None:
        firsts = [self._client.zrange(f"torchq:work:{each}", 0, 0, withscores=True) for each in ("delayed", "leases")]
        return min((found[0][1] for found in firsts if found), default=None)


_SCRIPTS = {
    each.sha: each.name
    for room in (redis_store, redis_work)
    for each in vars(room).values()
    if isinstance(each, Script)
}


class _Line:
    """A process's connection to Redis: each script passes the gate as one call."""

    def __init__(self, client: Any, gate: Gate) -> None:
        self._client, self._gate = client, gate
        self.connection_pool = client.connection_pool

    def evalsha(self, sha: str, count: int, *arguments: Any) -> Any:
        return self._call(_SCRIPTS[sha], lambda: self._client.evalsha(sha, count, *arguments), arguments)

    def eval(self, source: str, count: int, *arguments: Any) -> Any:
        return self._client.eval(source, count, *arguments)

    def get(self, name: str) -> Any:
        return self._call(f"get {name}", lambda: self._client.get(name), ())

    def pipeline(self, transaction: bool = True) -> "_Pipeline":  # noqa: ARG002
        """Return a pipeline, whose calls are sent together and carried out one by one."""
        return _Pipeline(self)

    def execute_command(self, *command: Any) -> Any:
        return self._call(" ".join(map(str, command[:2])), lambda: self._client.execute_command(*command), command)

    def _call(self, label: str, effect: Callable[[], Any], about: Any) -> Any:
        def known() -> Any:
            try:
                return effect()
            except NoScriptError as error:
                return error

        answer = self._gate(label, known, about=about, lost=RedisConnectionError, repeatable=True)
        if isinstance(answer, NoScriptError):
            raise answer
        return answer


class _Pipeline:
    """The part of redis-py's pipeline that `queues.redis.connection` uses."""

    def __init__(self, line: _Line) -> None:
        self._line = line
        self._calls: list[Callable[[], Any]] = []

    def __enter__(self) -> "_Pipeline":
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.clear()

    def evalsha(self, sha: str, count: int, *arguments: Any) -> None:
        self._calls.append(lambda: self._line.evalsha(sha, count, *arguments))

    def execute_command(self, *command: Any) -> None:
        self._calls.append(lambda: self._line.execute_command(*command))

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        assert not raise_on_error
        return [_answer(call) for call in self._calls]


def _answer(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except ResponseError as error:
        return error
