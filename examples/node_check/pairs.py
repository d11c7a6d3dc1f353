"""The groups of the two rounds in which nodes are checked."""

from collections.abc import Collection


def pair(world: int, failed: Collection[int] | None = None) -> list[list[int]]:
    """Return the groups of the first round, or of the second one after the ranks that failed in the first.

    The groups are pairs, and one of three if the number is odd. Each rank that failed meets one that did not.
    """
    bad = sorted(failed or ())
    good = [rank for rank in range(world) if rank not in bad]
    order = [rank for both in zip(bad, good, strict=False) for rank in both]
    order += bad[len(good) :] + good[len(bad) :]
    if failed is not None and not bad:
        order = order[1:] + order[:1]  # other pairs than in the first round
    groups = [order[at : at + 2] for at in range(0, world, 2)]
    if len(groups) > 1 and len(groups[-1]) == 1:
        last = groups.pop()
        groups[-1] += last
    return groups
