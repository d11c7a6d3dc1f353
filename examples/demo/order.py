"""What the demo expects of the order of admission.

One rule: pure, and computed independently of the picker: nginx's smooth weighted round robin, written down again in its
plainest form.
"""

from collections.abc import Iterable, Mapping, Sequence

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


def problem(order: Iterable[str], weights: Mapping[str, int], jobs: Mapping[str, int]) -> str:
    """Why an order of admission is not the expected one; empty if it is."""
    actual = contested(list(order), jobs)
    expected = smooth(weights, len(actual))
    if actual == expected:
        return ""
    at = next(index for index, (one, other) in enumerate(zip(actual, expected, strict=True)) if one != other)
    wrong = f"pick {at + 1} was {actual[at]}, smooth weighted round robin says {expected[at]}"
    return f"{wrong}: {' '.join(actual)} against {' '.join(expected)}"
