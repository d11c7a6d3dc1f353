"""The pods that are typical of a cluster: a few kinds, each with the part of all pods that is of this kind.

One rule: pure. The same pods give the same kinds, so that a new leader places pods as the one before.

Pods that ask for nearly the same are one kind: those with as many GPUs, whose other amounts have the same number of
binary digits. The commonest pod stands for its kind. Only pods that ask for what is scarce make kinds: GPUs, or cpu
where no pod asks for GPUs.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat

_GPUS = "/gpu"
"""The end of the names of GPUs, of any vendor."""
_MOST_KINDS = 32
"""The most kinds. The rarest are left out. With 12 kinds on the nodes of `bench simulate --nodes`, four times as many
GPUs were of no use in the end."""
_WEIGHTS = 64
"""The sum of all weights, but for rounding: a few jobs more or less leave the weights as they are."""

Demand = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class TypicalPods:
    """Kinds of pods, at least two."""

    names: tuple[str, ...]
    """The resources for which any kind asks."""
    scarce: tuple[int, ...]
    """The positions of the scarce resources in `names`."""
    kinds: tuple[tuple[int, tuple[int, ...]], ...]
    """The weight of each kind, and what its pods ask for, in the order of `names`."""

    _limits: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = field(init=False, repr=False, compare=False)
    """For each name, the amounts for which kinds ask, the least first; and for each number of them that a node has, the
    kinds whose pods do not fit, as bits."""
    _weights: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The weight of each set of kinds that was asked for."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_limits", tuple(self._limit(at) for at in range(len(self.names))))

    def _limit(self, position: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        asked = sorted({needs[position] for _, needs in self.kinds})
        above = (sum(1 << n for n, (_, needs) in enumerate(self.kinds) if needs[position] > amount) for amount in asked)
        return tuple(asked), ((1 << len(self.kinds)) - 1, *above)

    def amounts_of(self, demand: Mapping[str, int]) -> tuple[int, ...]:
        """Return amounts in the order of `names`."""
        return tuple(map(demand.get, self.names, repeat(0)))

    def unusable(self, free: tuple[int, ...]) -> int:
        """Return how much of what is scarce on a node is free but of no use, summed over the kinds by their weights. To
        a kind whose pods do not fit, all of it is of no use."""
        rest = sum(map(free.__getitem__, self.scarce))
        if rest <= 0:
            return 0
        without = 0
        for (asked, above), has in zip(self._limits, free, strict=True):
            without |= above[bisect_right(asked, has)]
        weight = self._weights.get(without)
        if weight is None:
            weight = sum(each for number, (each, _) in enumerate(self.kinds) if without >> number & 1)
            self._weights[without] = weight
        return rest * weight


def typical_of(pods: Mapping[Demand, int]) -> TypicalPods | None:
    """Return the kinds of pods, given how many pods ask for what. None if there are fewer than two kinds: then no place
    is better than another for what comes."""
    gpus = {name for demand in pods for name, _ in demand if name.endswith(_GPUS)}
    scarce = gpus or {"cpu"}
    wanted = {demand: count for demand, count in pods.items() if count and any(name in scarce for name, _ in demand)}
    groups = sorted(_alike(wanted, gpus), key=lambda group: (-sum(group.values()), min(group)))
    if len(groups) < 2:
        return None
    kinds = [(sum(group.values()), max(group, key=lambda one: (group[one], one))) for group in groups[:_MOST_KINDS]]
    total = sum(count for count, _ in kinds)
    names = tuple(sorted({name for _, demand in kinds for name, _ in demand}))
    weighed = ((max(1, round(_WEIGHTS * count / total)), dict(demand)) for count, demand in kinds)
    return TypicalPods(
        names,
        tuple(position for position, name in enumerate(names) if name in scarce),
        tuple((weight, tuple(demand.get(name, 0) for name in names)) for weight, demand in weighed),
    )


def _alike(pods: Mapping[Demand, int], gpus: Iterable[str]) -> Iterable[dict[Demand, int]]:
    """Return pods by what they nearly ask for."""
    groups: dict[object, dict[Demand, int]] = {}
    for demand, count in pods.items():
        near = tuple((name, each if name in gpus else each.bit_length()) for name, each in demand)
        groups.setdefault(near, {})[demand] = count
    return groups.values()
