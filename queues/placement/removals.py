"""Which pods have to leave their nodes so that a gang finds nodes: the fewest that are found.

Alike pods: what a node gains once pods leave it follows from that node alone, so each node has a few options, and the
options are searched whose sum is enough. Which pods leave one node for a further pod: those with most of what is
lacking. A gang of one pod with 8 GPUs, on nodes with 8 GPUs each:

    node   free   pods that may leave   option
    n1     4      4 with 1 GPU          1 further pod if 4 leave
    n2     0      8 with 1 GPU          1 further pod if 8 leave
    n3     0      1 with 4 GPUs         none

The 4 pods of n1 leave. Where the pods of a gang differ, this is done for one kind after the other, the largest first,
and the pods of each kind are placed on trial before the next. Other orders are tried where a kind finds no nodes then,
or where `assignment` would not find nodes for the gang.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from math import ceil, inf
from typing import NamedTuple

from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues.placement import assignment
from queues.placement.gangs import Members, NodeSet, Shape, merged
from queues.placement.node_room import NodeRoom, count_fitting
from queues.placement.trial import Trial, fill

_STEPS = 2_000
"""The most options that the search for the best sum tries, over all kinds of pods and all orders."""
_PASSES = 2
"""How often an order is tried, each time without the leavers that were found before."""
_DEPTH = 64
"""The most further pods for which sums are compared. For more, the nodes that gain most by each pod come first."""


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

    `most` is how many pods each owner loses at most. A choice may be missed where an owner has more, and where the pods
    of the gang differ. Of equal choices, `preferred` nodes and the first leavers go first. The room is the same
    afterwards.
    """
    wanted = merged(members)
    search = _Search(room, within, leavers, preferred)
    for order in assignment.orders(room, wanted, len(leavers)):
        away: list[int] = []
        for _ in range(_PASSES):
            further = search.in_order(order, most, away)
            if further is None:
                break
            away += further
            if len(wanted) == 1 or _are_enough(room, wanted, within, leavers, away):
                return sorted(away)
    return None


def _are_enough(
    room: NodeRoom, members: tuple[Members, ...], within: NodeSet, leavers: Sequence[Leaver], away: Sequence[int]
) -> bool:
    """Return whether a gang finds nodes without some leavers."""
    try:
        for index in away:
            room.use(leavers[index].node, leavers[index].demand, -1)
        return assignment.fits(room, members, within)
    finally:
        for index in away:
            room.use(leavers[index].node, leavers[index].demand, 1)


class _Search:
    """The search in one set of nodes."""

    def __init__(self, room: NodeRoom, within: NodeSet, leavers: Sequence[Leaver], preferred: NodeSet) -> None:
        self._room = room
        self._within = within
        self._leavers = leavers
        self._preferred = preferred
        self._steps = _STEPS
        self._by_node: dict[int, list[int]] = {}
        """The indexes of the leavers in the set by their nodes."""
        for index, leaver in enumerate(leavers):
            if within >> leaver.node & 1:
                self._by_node.setdefault(leaver.node, []).append(index)

    def in_order(self, members: tuple[Members, ...], most: Mapping[int, int], away: Iterable[int]) -> list[int] | None:
        """Return the leavers without which, beside those that are away, the members find nodes, one after the other;
        None if none are found."""
        trial, left, gone = Trial(self._room, self._within), dict(most), set[int]()

        def leave(index: int) -> None:
            leaver = self._leavers[index]
            trial.place(leaver.node, Shape(leaver.demand), -1)
            left[leaver.owner] -= 1
            gone.add(index)

        for index in away:
            leave(index)
        further: list[int] = []
        for one in members:
            found = self._find_alike(trial, one, left, gone, self._steps // len(members))
            if found is None:
                return None
            for index in found:
                leave(index)
            further += found
            for place in fill(sorted(trial.takes(one.shape).items()), *one):
                trial.place(*place)
        return further

    def _find_alike(
        self, trial: Trial, members: Members, most: Mapping[int, int], away: Container[int], steps: int
    ) -> list[int] | None:
        """Return the leavers without which alike pods find nodes, beside those that are away on trial."""
        shape, count = members
        need = count - sum(fit * nodes.bit_count() for fit, nodes in trial.takes(shape).items())
        if need <= 0:
            return []
        able, gain, allowed = [], 0, self._room.allowed(shape.where)
        for node, all_own in self._by_node.items():
            own = [index for index in all_own if index not in away] if allowed >> node & 1 else ()
            if options := _options(trial.free(node), shape, need, self._leavers, own, most):
                gain += options[-1].gain
                options.sort(key=lambda option: option.price)
                able.append((options[0].price, not self._preferred >> node & 1, options[0].leavers, options))
        if gain < need:
            return None
        able.sort(key=lambda one: one[:3])
        search = _SumSearch([options for *_, options in able], most, steps)
        search.take_first(need)
        if need <= _DEPTH:
            search.compare(0, need)
            self._steps -= steps - max(0, search.steps)
        return None if search.best is None else [each for option in search.best for each in option.leavers]


def _options(
    before: Amounts, shape: Shape, need: int, leavers: Sequence[Leaver], own: Iterable[int], most: Mapping[int, int]
) -> list[_Option]:
    """Return what a node gains with each further pod that leaves it, those first that have most of what is lacking.
    `before` is what is free on the node."""
    free, took = dict(before), count_fitting(before, shape.demand)
    lacking = {name: amount for name, amount in shape.demand if free.get(name, 0) < (took + 1) * amount}

    def help_of(index: int) -> float:
        return sum(amount / lacking[name] for name, amount in leavers[index].demand if name in lacking)

    gone: list[int] = []
    owners, options, gain = Counter[int](), [], 0
    for _, index in sorted((-help, index) for index in own if (help := help_of(index)) > 0):
        owner = leavers[index].owner
        if owners[owner] >= most.get(owner, 0) or gain >= need:
            continue
        amounts.increase(free, dict(leavers[index].demand))
        gone.append(index)
        owners[owner] += 1
        if (more := count_fitting(free, shape.demand) - took) > gain:
            gain = more
            options.append(_Option(gain, tuple(gone), Counter(owners)))
    return options


class _SumSearch:
    """The search for one option each of some nodes whose gains together are enough."""

    def __init__(self, nodes: Sequence[Sequence[_Option]], most: Mapping[int, int], steps: int) -> None:
        """`nodes` and the options of each are in the order of their prices."""
        self._nodes = nodes
        self._most = most
        self._taken: list[_Option] = []
        self._owners = Counter[int]()
        self._count = 0
        """How many pods leave with the options that are taken."""
        self._least = inf
        self.steps = steps
        """How many options may be tried yet."""
        self.best: tuple[_Option, ...] | None = None

    def take_first(self, need: int) -> None:
        """Try the cheapest option of each node in order until they are enough, without those that are not needed."""
        missing = need
        for options in self._nodes:
            option = next((one for one in options if self._has(one)), None) if missing > 0 else None
            if option is not None:
                self._take(option)
                missing -= option.gain
        if missing <= 0:
            for at in reversed(range(len(self._taken))):
                if missing + self._taken[at].gain <= 0:
                    missing += self._give_back(at).gain
            self._note()
        while self._taken:
            self._give_back()

    def compare(self, start: int, need: int) -> None:
        """Look for fewer pods among the nodes from one on, within a number of steps."""
        if need <= 0:
            self._note()
            return
        for at in range(start, len(self._nodes)):
            options = self._nodes[at]
            if self._count + ceil(need * options[0].price - 1e-9) >= self._least:
                return  # the nodes behind are not cheaper
            for option in options:
                self.steps -= 1
                if self.steps < 0:
                    return
                if self._has(option):
                    self._take(option)
                    self.compare(at + 1, need - option.gain)
                    self._give_back()

    def _take(self, option: _Option) -> None:
        self._taken.append(option)
        self._owners.update(option.owners)
        self._count += len(option.leavers)

    def _give_back(self, at: int = -1) -> _Option:
        option = self._taken.pop(at)
        self._owners.subtract(option.owners)
        self._count -= len(option.leavers)
        return option

    def _has(self, option: _Option) -> bool:
        """Return whether the owners may lose the pods of an option, too."""
        return all(self._owners[owner] + count <= self._most.get(owner, 0) for owner, count in option.owners.items())

    def _note(self) -> None:
        if self._count < self._least:
            self._least, self.best = self._count, tuple(self._taken)
