"""An arena with elastic jobs: charges that rise and fall, and room that is kept for a waiting job.

One rule: the coordinator's own picker decides who is admitted and whose growth is granted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.support.arena import Production
from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues.picking.queue_state import charge
from queues.values import OvertakenJob, Pick

_OFTEN = 1_000


class ElasticArena(Production):
    """The queues, their waiting jobs and growths, and what is charged."""

    def pick(self, now: float, limit: int) -> Sequence[Pick]:
        """Make up to `limit` picks, and return them in order."""
        picks = self.picks(now, limit)
        for pick in picks:
            entry = pick.waiting.entry
            self.lines[entry.queue].drop(entry)
            self.charge(entry.queue, pick.charge)
        return picks

    def charge(self, queue: str, demand: Amounts, times: int = 1) -> None:
        """Charge a queue; free it of the demand if `times` is below 0."""
        changed = amounts.scale(demand, times)
        charge(self.used, changed)
        charge(self.lines[queue].used, changed)
        self._changed.add(queue)

    def keep_claims(self, claims: Mapping[str, JobKey], now: float) -> None:
        """Let other jobs of these queues leave what the first one needs, and of no other queue."""
        for queue, record in list(self._overtaken.items()):
            if record is not None and record.claimed and claims.get(queue) != record.key:
                self._overtaken[queue] = replace(record, claimed=False)
                self._changed.add(queue)
        for queue, key in claims.items():
            record = self._record(queue, key, now)
            if not record.claimed:
                self._overtaken[queue] = replace(record, claimed=True)
                self._changed.add(queue)

    def hasten(self, jobs: Mapping[str, JobKey], now: float) -> None:
        """End the patience of the first jobs of queues."""
        for queue, key in jobs.items():
            record = self._record(queue, key, now)
            if record.times < _OFTEN:
                self._overtaken[queue] = replace(record, times=_OFTEN)
                self._changed.add(queue)

    def _record(self, queue: str, key: JobKey, now: float) -> OvertakenJob:
        record = self._overtaken.get(queue)
        return record if record is not None and record.key == key else OvertakenJob(key=key, times=0, since=now)
