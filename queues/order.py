"""Who is first inside one queue.

One rule: a job's place depends on the job and its queue's settings alone, so nothing is rewritten as time passes.
"""

import re
from functools import lru_cache

from queues.values import Entry

BOOST_LIMIT_SECONDS = 7 * 86400.0
"""The most that a priority can be worth. Whatever the namespaces of a queue's jobs are, a job of priority 0 is
overtaken by no job that is submitted more than this after it, and one of the lowest priority by none that is submitted
more than twice this after it."""


RETURNING_SECONDS = 4 * BOOST_LIMIT_SECONDS
"""How far ahead a job goes that was running when its queue was drained. Two boosts lie within 2 limits of each other,
so it is ahead of all that came after it, and of everything submitted up to 2 limits before it; what was submitted 6
limits before it stays ahead. It asks for no more than it held (`coordinator.cache.views.JobView.returning`)."""

LAST_SECOND = 10**10 - 1
"""The latest second of creation that is told from others, in seconds since 1970: it has ten digits."""
NO_SEQUENCE = "~"
"""In the place of a sequence; it sorts after all digits."""
_DIGITS = re.compile(r"[0-9]+")


def score(entry: Entry, aging_seconds: float) -> float:
    """The smaller goes first: the time of submission, moved by priority; returning jobs before all others.

    `submitted - min(max(priority * aging_seconds, -LIMIT), LIMIT)`, and for a returning job `4 * LIMIT` less.

    One step of priority is worth `aging_seconds` of age, so priority goes first and age wins in the end:

        submitted  priority  aging  score
        1000       0         600     1000
        1500       1         600      900    overtakes
        1700       1         600     1100    too late to overtake
    """
    boost = entry.priority * aging_seconds
    ahead = RETURNING_SECONDS if entry.returning else 0.0
    return entry.submitted - max(-BOOST_LIMIT_SECONDS, min(boost, BOOST_LIMIT_SECONDS)) - ahead


def place(entry: Entry, aging_seconds: float) -> tuple[float, str]:
    """What the jobs of a queue are sorted by, the smallest first: no two jobs have the same."""
    return score(entry, aging_seconds), member(entry)


def member(entry: Entry) -> str:
    """What decides between jobs of one score: the tie-break, then the job's key, compared as text. Redis keeps the jobs
    of a queue under these texts."""
    return place_of(tie(entry), str(entry.key))


def place_of(tie: str, key: str) -> str:
    """The same from its parts. It ends with the length of the tie-break, which tells where the key begins."""
    return f"{tie}{key} {len(tie):03d}"


def key_in(member: str) -> str:
    """The job key in such a text; without a length at its end the text itself."""
    text, _, length = member.rpartition(" ")
    return text[int(length) :] if text and length.isdigit() else member


def tie(entry: Entry) -> str:
    """The tie-break of a job: text that sorts as the following do, one after the other.

    1. the second in which the job was created, the latest first: of two jobs of one score, that one has the higher
       priority
    2. its sequence as two numbers; a job that has one goes before all that have none
    3. its namespace and its name, in which runs of digits are compared as numbers

    It is text so that a sorted set in Redis, which compares bytes, has the same order. A number is written as the count
    of its digits and its digits. A count of 9 and more is written as nines and a rest, so 12 is `93`:

        namespace  name   sequence                created  tie-break
        team       m-2    1764000000123456.0      8        99999999919717640000001234560 team m-12
        team       m-2    none                    8        9999999991~ team m-12
        team       m-110  none                    8        9999999991~ team m-3110
    """
    second = LAST_SECOND - int(max(0.0, min(entry.submitted, LAST_SECOND)))
    numbers = "".join(map(_number, entry.sequence.split("."))) if entry.sequence else NO_SEQUENCE
    return f"{second:010d}{numbers} {_of_namespace(entry.key.namespace)} {_natural(entry.key.name)} "


def _natural(name: str) -> str:
    """Text that sorts as a name in which runs of digits are numbers; the same for `m-2` and `m-02`."""
    return _DIGITS.sub(_match, name)


@lru_cache(4096)
def _of_namespace(namespace: str) -> str:
    """The same: many jobs have one namespace."""
    return _natural(namespace)


def _match(found: re.Match[str]) -> str:
    return _number(found[0])


def _number(digits: str) -> str:
    """Text that sorts as a number does. Digits are never converted: a run may be as long as a name."""
    digits = digits.lstrip("0")
    nines, rest = divmod(len(digits), 9)
    return f"{'9' * nines}{rest}{digits}"
