"""Who is first inside one queue.

One rule: a job's place depends on the job and its queue's settings alone, so nothing is rewritten as time passes.
"""

from crds.keys import JobKey
from queues.values import Entry

BOOST_LIMIT_SECONDS = 7 * 86400.0
"""The most that a priority can be worth. Whatever the namespaces of a queue's jobs are, a job of priority 0 is
overtaken by no job that is submitted more than this after it, and one of the lowest priority by none that is submitted
more than twice this after it."""


RETURNING_SECONDS = 4 * BOOST_LIMIT_SECONDS
"""How far ahead a job goes that was running when its queue was drained. Two boosts lie within 2 limits of each other,
so it is ahead of all that came after it, and of everything submitted up to 2 limits before it; what was submitted 6
limits before it stays ahead. It asks for no more than it held (`coordinator.views.JobView.returning`)."""


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


def place(entry: Entry, aging_seconds: float) -> tuple[float, JobKey]:
    """What to sort by: ties go by namespace and name, so that a rebuilt queue has the same order."""
    return score(entry, aging_seconds), entry.key
