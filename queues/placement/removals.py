"""Which pods have to leave their nodes so that a gang finds nodes: the fewest that are found.

Alike pods: what a node gains once pods leave it follows from that node alone, so each node has a few options, and the
options are searched whose sum is enough. Which pods leave one node for a further pod: those with most of what is
lacking. A gang of one pod with 8 GPUs, on nodes with 8 GPUs each:

    node   free   pods that may leave   option
    n1     4      4 with 1 GPU          1 further pod if 4 leave
    n2     0      8 with 1 GPU          1 further pod if 8 leave
    n3     0      1 with 4 GPUs         none

The 4 pods of n1 leave. Where the pods of a gang differ, all pods that may leave are taken away on trial, and then as
many of them as possible stay, node by node.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, inf
from typing import NamedTuple

from crds.resources import amounts
from queues.placement import assignment
from queues.placement.gangs import Members, NodeSet, Shape, merged
from queues.placement.node_room import NodeRoom, count_fitting

_STEPS = 2_000
"""The most nodes that the search for the best sum looks at."""
_DEPTH = 64
"""The most further pods for which sums are compared. For more, the nodes that gain most by each pod come first."""
_CHECKS = 400
"""The most checks of a gang whose pods differ."""


class Leaver(NamedTuple):
    """A pod that may leave its node."""

    node: int
    demand: tuple[tuple[str, int], ...]
    owner: int
    """The number of its job."""


class _Option(NamedTuple):
    """Pods that leave one node, and how many more pods of a gang the node takes then."""

    gain: int
    leavers: tuple[int, ...]
    owners: Counter[int]

    @property
    def price(self) -> float:
        """How many pods leave for one further pod."""
        return len(self.leavers) / self.gain


def find(
    room: NodeRoom,
    members: tuple[Members, ...],
    within: NodeSet,
    leavers: Sequence[Leaver],
    most: Mapping[int, int],
    preferred: NodeSet = 0,
) -> list[int] | None:
    """Return the indexes of the leavers without which a gang finds nodes of a set; None if no such leavers are found.

    `most` is how many pods each owner loses at most; where an owner has more, a choice may be missed. Of equal choices,
    `preferred` nodes and the first leavers go first. The room is the same afterwards.
    """
    wanted = merged(members)
    if len(wanted) != 1:
        return _find_mixed(room, wanted, within, leavers, most, preferred)
    [(shape, count)] = wanted
    need = count - room.total(shape, within)
    if need <= 0:
        return []
    able = []
    for node, own in _by_node(leavers, within & room.allowed(shape.where)).items():
        if options := _options(room, shape, need, leavers, own, most):
            options.sort(key=lambda option: option.price)
            able.append((options[0].price, not preferred >> node & 1, options[0].leavers, options))
    able.sort(key=lambda one: one[:3])
    search = _SumSearch([options for *_, options in able], most)
    search.take_first(need)
    if need <= _DEPTH:
        search.compare(0, need, ())
    return None if search.best is None else sorted(each for option in search.best for each in option.leavers)


def _by_node(leavers: Sequence[Leaver], nodes: NodeSet) -> dict[int, list[int]]:
    """Return the indexes of leavers by the nodes of a set."""
    found: dict[int, list[int]] = {}
    for index, leaver in enumerate(leavers):
        if nodes >> leaver.node & 1:
            found.setdefault(leaver.node, []).append(index)
    return found


def _options(
    room: NodeRoom, shape: Shape, need: int, leavers: Sequence[Leaver], own: Sequence[int], most: Mapping[int, int]
) -> list[_Option]:
    """Return what a node gains with each further pod that leaves it, those first that have most of what is lacking."""
    free = dict(room.free(leavers[own[0]].node))
    before = count_fitting(free, shape.demand)
    lacking = {name: amount for name, amount in shape.demand if free.get(name, 0) < (before + 1) * amount}

    def help_of(index: int) -> float:
        return sum(amount / lacking[name] for name, amount in leavers[index].demand if name in lacking)

    gone: list[int] = []
    owners, options, gain = Counter[int](), [], 0
    for index in sorted((each for each in own if help_of(each) > 0), key=lambda each: (-help_of(each), each)):
        owner = leavers[index].owner
        if owners[owner] >= most.get(owner, 0) or gain >= need:
            continue
        amounts.increase(free, dict(leavers[index].demand))
        gone.append(index)
        owners[owner] += 1
        if (more := count_fitting(free, shape.demand) - before) > gain:
            gain = more
            options.append(_Option(gain, tuple(gone), Counter(owners)))
    return options


class _SumSearch:
    """The search for one option each of some nodes whose gains together are enough."""

    def __init__(self, nodes: Sequence[Sequence[_Option]], most: Mapping[int, int]) -> None:
        """`nodes` and the options of each are in the order of their prices."""
        self._nodes = nodes
        self._most = most
        self._steps = _STEPS
        self._least = inf
        self.best: tuple[_Option, ...] | None = None

    def take_first(self, need: int) -> None:
        """Take the cheapest option of each node in order until they are enough, and leave out what is not needed."""
        taken: list[_Option] = []
        owners, missing = Counter[int](), need
        for options in self._nodes:
            option = next((one for one in options if self._has(owners, one)), None)
            if missing > 0 and option is not None:
                taken.append(option)
                owners.update(option.owners)
                missing -= option.gain
        for option in [*reversed(taken)] if missing <= 0 else ():
            if missing + option.gain <= 0:
                taken.remove(option)
                missing += option.gain
        if missing <= 0:
            self._note(tuple(taken))

    def compare(self, start: int, need: int, taken: tuple[_Option, ...]) -> None:
        """Look for fewer pods among the nodes from one on, within a number of steps."""
        if need <= 0:
            self._note(taken)
            return
        owners = sum((option.owners for option in taken), Counter[int]())
        count = sum(len(option.leavers) for option in taken)
        for at in range(start, len(self._nodes)):
            self._steps -= 1
            options = self._nodes[at]
            if self._steps < 0 or count + ceil(need * options[0].price - 1e-9) >= self._least:
                return  # the nodes behind are not cheaper
            for option in options:
                if self._has(owners, option):
                    self.compare(at + 1, need - option.gain, (*taken, option))

    def _has(self, owners: Counter[int], option: _Option) -> bool:
        """Return whether the owners may lose the pods of an option, too."""
        return all(owners[owner] + count <= self._most.get(owner, 0) for owner, count in option.owners.items())

    def _note(self, taken: tuple[_Option, ...]) -> None:
        count = sum(len(option.leavers) for option in taken)
        if count < self._least:
            self._least, self.best = count, taken


def _find_mixed(
    room: NodeRoom,
    members: tuple[Members, ...],
    within: NodeSet,
    leavers: Sequence[Leaver],
    most: Mapping[int, int],
    preferred: NodeSet,
) -> list[int] | None:
    """Return the leavers without which a gang of different pods finds nodes. Each of them is needed, unless there are
    so many that the checks run out. Pods on nodes that gain least stay first."""

    lacking = [one for one in members if room.total(one.shape, within) < one.count] or members

    def price(own: Sequence[int]) -> float:
        found = (_options(room, shape, count, leavers, own, most) for shape, count in lacking)
        return min((option.price for options in found for option in options), default=inf)

    left, able = Counter[int](), []
    by_node = [(price(own), not preferred >> node & 1, own) for node, own in _by_node(leavers, within).items()]
    for index in (index for _, _, own in sorted(by_node) for index in own):
        if left[leavers[index].owner] < most.get(leavers[index].owner, 0):
            left[leavers[index].owner] += 1
            able.append(index)
    trial = _MixedTrial(room, members, within, leavers)
    trial.move(able, -1)
    needed = trial.needed(able[::-1]) if trial.fits() else None
    trial.move(able if needed is None else needed, 1)
    return None if needed is None else sorted(needed)


class _MixedTrial:
    """A room from which leavers are away on trial."""

    def __init__(
        self, room: NodeRoom, members: tuple[Members, ...], within: NodeSet, leavers: Sequence[Leaver]
    ) -> None:
        self._room, self._members, self._within, self._leavers = room, members, within, leavers
        self._checks = _CHECKS

    def move(self, indexes: Iterable[int], times: int) -> None:
        """Count leavers as there once more, or as away if `times` is below 0."""
        for index in indexes:
            self._room.use(self._leavers[index].node, self._leavers[index].demand, times)

    def fits(self) -> bool:
        """Return whether the gang finds nodes now."""
        self._checks -= 1
        return assignment.fits(self._room, self._members, self._within)

    def needed(self, away: list[int]) -> list[int]:
        """Let as many of some leavers stay as possible, many at once, and return the others."""
        if not away or self._checks <= 0:
            return away
        self.move(away, 1)
        if self.fits():
            return []
        self.move(away, -1)
        if len(away) == 1:
            return away
        middle = len(away) // 2
        return [*self.needed(away[:middle]), *self.needed(away[middle:])]
