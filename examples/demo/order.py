"""The order of admission that the demo expects.

One rule: pure, and independent of the picker's code. It is nginx's smooth weighted round robin in its simplest form.
"""

from collections.abc import Mapping, Sequence

WEIGHTS: Mapping[str, int] = {"a": 5, "b": 2, "c": 1}
JOBS = 8
"""The number of jobs in each queue."""


def smooth(weights: Mapping[str, int], picks: int) -> list[str]:
    """Return the first picks while every queue has jobs.

    At each pick, every queue's value grows by its weight. The queue with the largest value is picked, and its value
    falls by the sum of all weights. {a: 5, b: 2, c: 1} gives a b a a c a b a, and then repeats.
    """
    current = dict.fromkeys(weights, 0)
    order = []
    for _ in range(picks):
        for name, weight in weights.items():
            current[name] += weight
        winner = max(current, key=lambda name: current[name])  # among equal values, the first queue
        current[winner] -= sum(weights.values())
        order.append(winner)
    return order


def contested(order: Sequence[str], jobs: Mapping[str, int]) -> list[str]:
    """Return the picks while all queues have waiting jobs: up to the first pick that takes the last job of a queue."""
    remaining = dict(jobs)
    picks = []
    for name in order:
        picks.append(name)
        remaining[name] -= 1
        if remaining[name] == 0:
            break
    return picks


def problem(admissions: Sequence[tuple[int, str]], weights: Mapping[str, int], jobs: Mapping[str, int]) -> str:
    """Return why an order of admission, as pairs of epoch and queue, is not the expected one; empty if it is.

    A new epoch continues the order, unless Redis had lost its content: then the order starts from its beginning.
    """
    actual = contested([queue for _, queue in admissions], jobs)
    epochs = [epoch for epoch, _ in admissions[: len(actual)]]
    boundaries = [at for at in range(1, len(actual)) if epochs[at] != epochs[at - 1]]
    if _fits(actual, boundaries, weights):
        return ""
    expected = smooth(weights, len(actual))
    return f"{' '.join(actual)} is not smooth weighted round robin, which is {' '.join(expected)}"


def _fits(actual: list[str], boundaries: list[int], weights: Mapping[str, int]) -> bool:
    """Return whether the picks follow the order, which may start from its beginning at any of the boundaries."""
    if actual == smooth(weights, len(actual)):
        return True
    splits = ((at, [boundary - at for boundary in boundaries if boundary > at]) for at in boundaries)
    return any(actual[:at] == smooth(weights, at) and _fits(actual[at:], later, weights) for at, later in splits)
