"""The order of the jobs in one queue.

One rule: a job's position depends on the job and its queue's settings alone, so nothing is rewritten as time passes.
"""

import re
from functools import lru_cache

from queues.values import Entry

BOOST_LIMIT_SECONDS = 7 * 86400.0
"""The most that a priority can move a job. No job that is submitted more than this after a job of priority 0 goes
before it. No job that is submitted more than twice this after a job of the lowest priority goes before it."""


RETURNING_SECONDS = 4 * BOOST_LIMIT_SECONDS
"""How far a job moves ahead that was running when its queue was drained. Two boosts differ by at most 2 limits. So the
job goes before all jobs that were submitted after it, or up to 2 limits before it. A job that was submitted 6 limits
before it stays ahead. The job asks for no more than it had (`coordinator.cache.views.JobView.returning`)."""

LAST_SECOND = 10**10 - 1
"""The latest time of creation that a tie-break can hold, in seconds since 1970. It has ten digits."""
NO_SEQUENCE = "~"
"""Stands for a missing sequence. It sorts after all digits."""
_DIGITS = re.compile(r"[0-9]+")


def score(entry: Entry, aging_seconds: float) -> float:
    """Return a job's score: the time of submission, moved by priority. The entry with the lowest score is first.

    `submitted - min(max(priority * aging_seconds, -LIMIT), LIMIT)`, and for a returning job `4 * LIMIT` less.

    One step of priority is worth `aging_seconds` of age, so a priority goes first and age wins in the end:

        submitted  priority  aging  score
        1000       0         600     1000
        1500       1         600      900    overtakes
        1700       1         600     1100    too late to overtake
    """
    boost = entry.priority * aging_seconds
    ahead = RETURNING_SECONDS if entry.returning else 0.0
    return entry.submitted - max(-BOOST_LIMIT_SECONDS, min(boost, BOOST_LIMIT_SECONDS)) - ahead


def place(entry: Entry, aging_seconds: float) -> tuple[float, str]:
    """Return the sort key of a job in its queue. The job with the lowest key is first, and no two jobs have the same
    key.
    """
    return score(entry, aging_seconds), member(entry)


def member(entry: Entry) -> str:
    """Return the text that orders jobs of one score: the tie-break, then the job's key.

    Redis stores the jobs of a queue under these texts.
    """
    return place_of(tie(entry), str(entry.key))


def place_of(tie: str, key: str) -> str:
    """Return the text of `member` from its parts. The text ends with the length of the tie-break, for `key_in`."""
    return f"{tie}{key} {len(tie):03d}"


def key_in(member: str) -> str:
    """Return the job key in a text of `member`; a text without a length at its end is returned as it is."""
    text, _, length = member.rpartition(" ")
    return text[int(length) :] if text and length.isdigit() else member


def tie(entry: Entry) -> str:
    """Return the tie-break of a job: a text that sorts by the following, one after the other.

    1. the second in which the job was created, the latest first: of two jobs of one score, the later one has the
       higher priority
    2. its sequence as two numbers; a job that has one goes before all that have none
    3. its namespace and its name, in which runs of digits are compared as numbers

    It is a text so that a sorted set in Redis, which compares bytes, has the same order. A number is written as the
    count of its digits and its digits. A count of 9 and more is written as nines and a rest, so 12 is `93`:

        namespace  name   sequence                created  tie-break
        team       m-2    1764000000123456.0      8        99999999919717640000001234560 team m-12
        team       m-2    none                    8        9999999991~ team m-12
        team       m-110  none                    8        9999999991~ team m-3110
    """
    second = LAST_SECOND - int(max(0.0, min(entry.submitted, LAST_SECOND)))
    numbers = "".join(map(_number, entry.sequence.split("."))) if entry.sequence else NO_SEQUENCE
    return f"{second:010d}{numbers} {_natural_namespace(entry.key.namespace)} {_natural(entry.key.name)} "


def _natural(name: str) -> str:
    """Return a text that sorts as a name in which runs of digits are numbers. `m-2` and `m-02` give the same text."""
    return _DIGITS.sub(_replace_digits, name)


@lru_cache(4096)
def _natural_namespace(namespace: str) -> str:
    """Return `_natural` of a namespace, from a cache: many jobs share one namespace."""
    return _natural(namespace)


def _replace_digits(match: re.Match[str]) -> str:
    return _number(match[0])


def _number(digits: str) -> str:
    """Return a text that sorts as a number does. Digits are never converted: a run may be as long as a name."""
    digits = digits.lstrip("0")
    nines, rest = divmod(len(digits), 9)
    return f"{'9' * nines}{rest}{digits}"
