"""How much room has been free of every claim, and for how long without a break.

One rule: room that was used for a moment begins anew. What is forgotten counts as younger, never as older.

For one limit and one resource, the steps of 4 that are free from 0 s on, 6 from 10 s on, and 5 from 20 s on:

    at      4 since 0, 6 since 10        at 15 s, 4 have been free for 15 s, and 6 for 5 s
    then    4 since 0, 5 since 10        at 25 s, 4 have been free for 25 s, and 5 for 15 s
"""

from queues.resizing.values import Since

_MOST = 16
"""The most steps that are kept."""


def observe(before: tuple[Since, ...], free: int, now: float) -> tuple[Since, ...]:
    """Return what is known after so much was found free."""
    if before and before[-1].amount == free and before[-1].since <= now:
        return before
    if free <= 0:
        return ()
    lower = tuple(step for step in before if step.amount < free)
    since = before[len(lower)].since if len(lower) < len(before) else now
    steps = (*lower, Since(free, min(since, now)))
    return steps if len(steps) <= _MOST else _without_shortest(steps)


def free_for(steps: tuple[Since, ...], seconds: float, now: float) -> int:
    """Return the largest amount that has been free for so long."""
    if steps and now - steps[-1].since >= seconds:
        return steps[-1].amount
    return next((step.amount for step in reversed(steps) if now - step.since >= seconds), 0)


def _without_shortest(steps: tuple[Since, ...]) -> tuple[Since, ...]:
    """Return the steps without the one that was followed by the next one soonest."""
    index = min(range(len(steps) - 1), key=lambda each: steps[each + 1].since - steps[each].since)
    return steps[:index] + steps[index + 1 :]
