"""A cache of validation rules that hold: the same rule is not run again for the same values.

One rule: a rule is a pure function of the fields it reads, so a result is cached under exactly these fields. Only the
result "it holds" is cached: a rule that does not hold has to run again, to produce its message.

Most writes change only the status, which most rules do not read, and most objects come from a few templates: nine of
ten results are in the cache.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import orjson

from embedded.apiserver.status_errors import bad_request

MOST = 2_000
"""The results cached per node of a schema, some 200 kilobytes. A full cache is emptied."""

Chain = tuple[str, ...]
CacheKey = bytes


class FieldRead(NamedTuple):
    """A field that a rule reads."""

    before: bool
    """Whether the rule reads the field of the old value (`oldSelf`)."""
    chain: Chain
    """The path of the field; empty for the whole value."""
    shape: bool
    """Whether the rule only tests that the field exists."""


class CacheableRule(Protocol):
    """The parts of a rule that the cache needs."""

    @property
    def source(self) -> str:
        """The rule's text."""

    @property
    def reads(self) -> tuple[FieldRead, ...]:
        """All fields that the rule reads, in order."""


AnyRule = TypeVar("AnyRule", bound=CacheableRule)


class RuleCache:
    """The cached results of the rules at one node of a schema."""

    def __init__(self) -> None:
        self._keys: set[CacheKey] = set()

    def missing(self, rules: Iterable[AnyRule], value: Any, before: Any) -> list[tuple[AnyRule, CacheKey]]:
        """Return the rules that have to run on a value and its old value, each with its cache key."""
        read: dict[FieldRead, bytes] = {}
        candidates = [(rule, cache_key(rule, value, before, read)) for rule in rules]
        return [(rule, key) for rule, key in candidates if key not in self._keys]

    def add(self, key: CacheKey) -> None:
        """Record the cache key of a rule that holds."""
        if len(self._keys) >= MOST:
            self._keys.clear()
        self._keys.add(key)


def cache_key(rule: CacheableRule, value: Any, before: Any, read: dict[FieldRead, bytes]) -> CacheKey:
    """Return a digest of the rule and of all values that it reads; `read` caches the values for the next rules."""
    digest = hashlib.blake2b(rule.source.encode(), digest_size=16)
    for field in rule.reads:
        if field not in read:
            read[field] = _value_at(before if field.before else value, field)
        digest.update(b"%d:" % len(read[field]))
        digest.update(read[field])
    return digest.digest()


def _value_at(value: Any, read: FieldRead) -> bytes:
    """Return the value at a path as bytes; for a missing field, `-` and the number of steps that exist."""
    for depth, step in enumerate(read.chain):
        if not isinstance(value, Mapping) or step not in value:
            return b"-%d" % depth
        value = value[step]
    if read.shape:
        return b"+" if value is not None else b"0"
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise bad_request("the object is nested too deeply") from error
