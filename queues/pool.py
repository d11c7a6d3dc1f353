"""The room that all queues share while picks are made, and the one reservation in it.

One rule: whether there is room is asked for a group of queues at once, not for each.
"""

from collections.abc import Iterable, Iterator
from itertools import count

from crds import amounts
from crds.amounts import Amounts
from queues import lanes
from queues.lanes import Lane, Shape

EVERYBODY = 0
"""The group of all queues where nothing is scarce."""
_Form = tuple[frozenset[Shape], bool]
_MOST_FORMS = 4_096


class Pool:
    """What there is, what is used, and what is kept for the job that holds the reservation."""

    def __init__(self, capacity: Amounts, used: Amounts) -> None:
        """A pool without any capacity limits nothing."""
        self.capacity = capacity
        self.used = dict(used)
        self._beside = dict(used)
        self._groups: dict[_Form, int] = {}
        self._demands: dict[int, list[Amounts]] = {EVERYBODY: []}
        self._numbers = count(EVERYBODY + 1)

    def fits(self, demand: Amounts) -> bool:
        """Whether there is room for it beside the reservation."""
        return amounts.fits(demand, self._beside, self.capacity)

    def fits_reserved(self, demand: Amounts) -> bool:
        """Whether there is room for the job that holds the reservation."""
        return amounts.fits(demand, self.used, self.capacity)

    def charge(self, demand: Amounts) -> None:
        """Use some of it."""
        lanes.charge(self.used, demand)
        lanes.charge(self._beside, demand)

    def show(self, used: Amounts) -> None:
        """The store's word on what is used."""
        self.used = dict(used)

    def reserve(self, demand: Amounts) -> None:
        """Keep room for this job from now on, and for no other."""
        self._beside = dict(self.used)
        lanes.charge(self._beside, demand)

    def group(self, lane: Lane) -> int:
        """The queues whose jobs ask for the same, and that are owed it in the same way: if one of them finds no room,
        none does."""
        if not self.capacity:
            return EVERYBODY
        form = frozenset(lanes.shape(each.demand) for each in lane.offers), lane.leads
        if form not in self._groups:
            self._groups[form] = next(self._numbers)
            self._demands[self._groups[form]] = [each.demand for each in lane.offers]
        return self._groups[form]

    def with_room(self, groups: Iterable[int]) -> Iterator[int]:
        """Those of the groups for which there is room."""
        return (group for group in groups if any(map(self.fits, self._demands.get(group, ()))))

    def forget_groups(self) -> bool:
        """If very many were met since the last time, forget them: every queue must be told its group anew."""
        if len(self._groups) <= _MOST_FORMS:
            return False
        self._groups.clear()
        self._demands = {EVERYBODY: []}
        return True
