"""The room that all queues share while picks are made, and the one reservation in it.

One rule: whether there is room is asked for a group of queues at once, not for each.
"""

from itertools import count

from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues.picking import queue_state
from queues.picking.queue_state import Candidate, Lane, Shape

EVERYBODY = 0
"""The group of all queues where nothing is scarce."""
_Form = tuple[frozenset[Shape], bool]
_SPARE_FORMS = 1_024


class Pool:
    """What there is, what is used, and what is kept for the job that holds the reservation."""

    def __init__(self, capacity: Amounts, used: Amounts) -> None:
        """A pool without any capacity limits nothing."""
        self.capacity = capacity
        self.used = dict(used)
        self._beside = dict(used)
        self._groups: dict[_Form, int] = {}
        self._least: dict[str, int] | None = None
        self._numbers = count(EVERYBODY + 1)

    def fits(self, demand: Amounts) -> bool:
        """Whether there is room for it beside the reservation."""
        return amounts.fits(demand, self._beside, self.capacity)

    def fits_reserved(self, demand: Amounts) -> bool:
        """Whether there is room for the job that holds the reservation."""
        return amounts.fits(demand, self.used, self.capacity)

    def first_fitting(self, lane: Lane) -> Candidate | None:
        """The first of the jobs that a queue contends with that fits beside the reservation."""
        for candidate in lane.offers:
            if self.fits(candidate.demand):
                return candidate
        return None

    def charge(self, demand: Amounts) -> None:
        """Use some of it."""
        queue_state.charge_limited(self.used, demand, self.capacity)
        queue_state.charge_limited(self._beside, demand, self.capacity)

    def show(self, used: Amounts) -> None:
        """The store's word on what is used."""
        self.used = dict(used)

    def reserve(self, demand: Amounts) -> None:
        """Keep room for this job from now on, and for no other."""
        self._beside = dict(self.used)
        queue_state.charge_limited(self._beside, demand, self.capacity)

    def group(self, lane: Lane) -> int:
        """The queues whose jobs ask for the same, and that are owed it in the same way: if one of them finds no room,
        none does."""
        if not self.capacity:
            return EVERYBODY
        form = frozenset(queue_state.shape(each.demand) for each in lane.offers), lane.claims
        if form not in self._groups:
            self._groups[form] = next(self._numbers)
            for each in lane.offers:
                self._learn(each.demand)
        return self._groups[form]

    def exhausted(self) -> bool:
        """Whether nobody can fit, because less of something is left than anybody asks for."""
        return self._least is not None and not amounts.fits(self._least, self.used, self.capacity)

    def _learn(self, demand: Amounts) -> None:
        """What anybody asks for at least, of each name: a bound from below over all that were ever asked."""
        asked = {name: demand.get(name, 0) for name in self.capacity}
        known = self._least
        self._least = asked if known is None else {name: min(each, known[name]) for name, each in asked.items()}

    def forget_groups(self, queues: int) -> bool:
        """If many more were met than there are queues, forget them: every queue must be told its group anew."""
        if len(self._groups) <= 4 * queues + _SPARE_FORMS:
            return False
        self._groups.clear()
        self._least = None
        return True
