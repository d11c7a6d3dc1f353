"""Rules that are known to hold: for the same rule and the same values there is no need to ask again.

One rule: a rule is a pure function of the fields it reads, so an answer is remembered under exactly these, and only
"it holds": a rule that does not hold is run, for its words.

Most writes change the status of an object and nothing that most rules read, and most objects are made from a few
templates: nine of ten answers are known.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import orjson

from embedded.apiserver.status_errors import bad_request

MOST = 2_000
"""Answers remembered per place in a schema; then all are forgotten. Some 200 kilobytes."""

Chain = tuple[str, ...]
Question = bytes


class Read(NamedTuple):
    """Something a rule looks at."""

    before: bool
    """Whether it is of the value before (`oldSelf`)."""
    chain: Chain
    """The path; empty: all of the value."""
    shape: bool
    """Whether only its being there counts."""


class Reader(Protocol):
    """What is asked of a rule here."""

    @property
    def source(self) -> str:
        """The rule's text."""

    @property
    def reads(self) -> tuple[Read, ...]:
        """All that it looks at, in order."""


AnyRule = TypeVar("AnyRule", bound=Reader)


class Memory:
    """The answers of the rules at one place in a schema."""

    def __init__(self) -> None:
        self._known: set[Question] = set()

    def unanswered(self, rules: Iterable[AnyRule], value: Any, before: Any) -> list[tuple[AnyRule, Question]]:
        """The rules that have to be run on a value and the one before it, each with what to remember it by."""
        read: dict[Read, bytes] = {}
        asked = [(rule, question(rule, value, before, read)) for rule in rules]
        return [(rule, each) for rule, each in asked if each not in self._known]

    def holds(self, question: Question) -> None:
        """The rule holds."""
        if len(self._known) >= MOST:
            self._known.clear()
        self._known.add(question)


def question(rule: Reader, value: Any, before: Any, read: dict[Read, bytes]) -> Question:
    """A digest of the rule and of everything it can see; `read` keeps what its neighbours have read already."""
    digest = hashlib.blake2b(rule.source.encode(), digest_size=16)
    for each in rule.reads:
        if each not in read:
            read[each] = _seen(before if each.before else value, each)
        digest.update(b"%d:" % len(read[each]))
        digest.update(read[each])
    return digest.digest()


def _seen(value: Any, read: Read) -> bytes:
    """What is at a path, as bytes: `-` and how far the path goes if it ends early."""
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
