"""What the demo expects of the order of admission.

One rule: pure, and computed independently of the picker: nginx's smooth weighted round robin, written down again in its
plainest form.
"""

from collections.abc import Mapping, Sequence

WEIGHTS: Mapping[str, int] = {"a": 5, "b": 2, "c": 1}
JOBS = 8
"""Jobs submitted to each queue."""


def smooth(weights: Mapping[str, int], picks: int) -> list[str]:
    """The first picks while every queue has jobs: each gains its weight, the largest is taken and pays the total.

    {5, 2, 1} gives a b a a c a b a, and again.
    """
    current = dict.fromkeys(weights, 0)
    order = []
    for _ in range(picks):
        for name, weight in weights.items():
            current[name] += weight
        chosen = max(current, key=lambda name: current[name])  # the first of equals
        current[chosen] -= sum(weights.values())
        order.append(chosen)
    return order


def contested(order: Sequence[str], jobs: Mapping[str, int]) -> list[str]:
    """The picks up to the one that takes the last job of some queue: until then all of them had jobs waiting."""
    left = dict(jobs)
    taken = []
    for name in order:
        taken.append(name)
        left[name] -= 1
        if left[name] == 0:
            break
    return taken


def problem(admissions: Sequence[tuple[int, str]], weights: Mapping[str, int], jobs: Mapping[str, int]) -> str:
    """Why an order of admission, pairs of epoch and queue, is not the expected one; empty if it is.

    A new epoch goes on with the round, unless Redis had lost its content: then it begins a new one.
    """
    actual = contested([queue for _, queue in admissions], jobs)
    epochs = [epoch for epoch, _ in admissions[: len(actual)]]
    boundaries = [at for at in range(1, len(actual)) if epochs[at] != epochs[at - 1]]
    if _fits(actual, boundaries, weights):
        return ""
    expected = smooth(weights, len(actual))
    return f"{' '.join(actual)} is not smooth weighted round robin, which is {' '.join(expected)}"


def _fits(actual: list[str], boundaries: list[int], weights: Mapping[str, int]) -> bool:
    """Whether the picks are rounds, each begun at the start or at one of the boundaries."""
    if actual == smooth(weights, len(actual)):
        return True
    splits = ((at, [each - at for each in boundaries if each > at]) for at in boundaries)
    return any(actual[:at] == smooth(weights, at) and _fits(actual[at:], later, weights) for at, later in splits)
