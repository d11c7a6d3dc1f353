"""The loop of the recorder: rows that wait go into the database, and the Lease says how far that is.

One rule: nothing ends the loop but a database that cannot be the right one. What cannot be written waits, and what
nobody saw is said.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from itertools import islice

from coordinator.errors import CoordinatorError
from coordinator.metrics.recorder_metrics import ROWS
from coordinator.recorder import absences
from coordinator.recorder.database import DatabaseAccess
from coordinator.recorder.pending_rows import PendingRows
from coordinator.recorder.recorder_lease import RENEW_SECONDS, RecorderLease
from coordinator.recorder.sights import Sights
from crds.resources.amounts import Amounts
from history import precedence
from history.errors import HistoryError, NotReachable
from history.rows import PoolRow, Row
from history.sightings import queues as queue_sights
from history.store import HistoryStore, Span
from kube import errors
from kube.process.meter import NO_METER, Meter
from kube.process.turns import Turn, Turns
from queues.redis.log_throttle import OutageLog

PAUSE_SECONDS = 1.0
"""The pause between two writes."""
BATCH = 1_000
"""The most rows of one transaction."""
JOBS_AT_ONCE = 200
"""The jobs whose rows are made before they are written, when everything is read again."""
UNSURE_SECONDS = 1.0
"""An event may be on its way for this long: everything is recorded up to a time that long ago."""
WRITE_SECONDS = 120.0
"""The longest time for which the database may keep the loop."""
SWEEP_SECONDS = PRUNE_SECONDS = 3_600.0
PRUNED_AT_ONCE = 500
"""The jobs that are pruned in one transaction."""
DAY = 86_400
POOL_SECONDS, POOL_AGAIN_SECONDS = 60.0, 5.0
"""How often a coordinator is asked for the size of the pool, and how soon again if it did not answer."""
log = logging.getLogger(__name__)


class Recorder:
    """Writes what `sights` sees. One thread calls `step`; any thread may read the properties."""

    def __init__(
        self,
        sights: Sights,
        pending: PendingRows,
        database: DatabaseAccess,
        lease: RecorderLease,
        *,
        now: Callable[[], float],
        days: int = 0,
        clock: Callable[[], float] = time.monotonic,
        meter: Meter = NO_METER,
    ) -> None:
        """`now` is the time of the API server, `days` for how many days jobs are kept (0: for ever)."""
        self._sights = sights
        self._pending = pending
        self._database = database
        self._lease = lease
        self._now = now
        self._days = days
        self._clock = clock
        self._meter = meter
        self._turn = Turn("")
        self._outage = OutageLog(log, clock)
        self._read: tuple[int, ...] = ()
        """The lists of which everything is in the database."""
        self._since = 0
        """When these lists were read."""
        self._is_settled = False
        """Whether the absence before them is in the database."""
        self._renew_at = self._prune_at = self._sweep_at = clock()
        self._recorded_until = now()
        self._stated = 0
        """Up to when this process has said that everything is recorded."""
        self._has_begun = False
        self._pool: PoolRow | None = None
        self._found_pool: PoolRow | None = None

    @property
    def behind(self) -> float:
        """The seconds since everything was in the database, or since the start of a recorder that has not begun."""
        return max(0.0, self._now() - self._recorded_until)

    def note_pool(self, amounts: Amounts) -> None:
        """Note what the pool has now."""
        self._found_pool = queue_sights.of_pool(amounts, int(self._now()))

    def run(self, stop: threading.Event, turns: Turns) -> None:
        """Record until stopped, as one of the loops in `turns`; then write what waits and hand the Lease back. Raises
        HistoryError if the database is not that of this cluster and version."""
        self._turn = turns.loop("recorder")
        for _ in self._turn.rounds(stop, PAUSE_SECONDS):
            with self._turn.waiting("the database", WRITE_SECONDS):
                self.step()
        self._renew_at = self._clock()
        self.step()
        self._lease.release()
        self._database.close()

    def step(self) -> None:
        """Write what waits; every few seconds say how far that is. Raises any HistoryError but NotReachable."""
        until, version, lists = self._now() - UNSURE_SECONDS, self._sights.jobs.told_version, self._sights.lists
        is_current = self._sights.look()
        try:
            with self._database.store() as store:
                if not self._has_begun:
                    self._recorded_until, self._has_begun = store.recorded_until() or self._recorded_until, True
                self._flush(store)
                if self._pending.take_has_dropped():
                    self._read = ()
                if self._sights.synced and self._clock() >= self._renew_at:
                    self._renew_at = self._clock() + RENEW_SECONDS
                    if store.recorded_until() < self._stated:  # the database was lost, or is restored from a backup
                        self._read, self._stated = (), 0
                    self._read_again(store, lists, until)
                    if is_current:
                        self._state(store, version, until)
        except NotReachable:
            return  # the log says it, and the rows wait

    def _flush(self, store: HistoryStore) -> None:
        rows = self._pending.take()
        try:
            while rows:
                self._write(store, rows[:BATCH])
                del rows[:BATCH]
        finally:
            self._pending.put(rows, is_gone=True)

    def _read_again(self, store: HistoryStore, lists: tuple[int, ...], until: float) -> None:
        """Write all that exists, if a list was read since the last time."""
        if lists == self._read:
            return
        everything = self._sights.everything()
        while jobs := list(islice(everything, JOBS_AT_ONCE)):
            self._turn.allow(WRITE_SECONDS)
            self._write(store, [row for rows in jobs for row in rows])
        self._read, self._since, self._is_settled = lists, int(until), False

    def _state(self, store: HistoryStore, version: int, until: float) -> None:
        """Say how far everything is recorded, if no other recorder does, and do what only one has to do."""
        try:
            if self._lease.is_free():
                self._settle(store)
                self._write_pool(store)
                self._prune(store)
                store.record_until(int(until))
                self._stated = int(until)
                self._lease.renew(version, until)
            self._recorded_until = until
            self._outage.report_recovery()
        except errors.ClusterError as error:
            self._outage.report_failure(error)

    def _settle(self, store: HistoryStore) -> None:
        """Write what is gone: once after an absence, and now and then, since a recorder that was cut off may write what
        it had seen last after another one has looked."""
        now, is_due = self._clock(), self._clock() >= self._sweep_at
        if self._is_settled and not is_due:
            return
        before = store.recorded_until()
        if self._is_settled:
            self._write(store, absences.gone(store, self._sights, self._since))
        else:
            self._write(store, absences.rows(store, self._sights, self._since, before))
            pools = store.pools(Span(self._since, self._since + 1))
            self._pool = pools[-1] if pools else None
        self._write(store, absences.pod_rows(store, self._sights, before))
        self._is_settled, self._sweep_at = True, now + SWEEP_SECONDS

    def _write_pool(self, store: HistoryStore) -> None:
        found, last = self._found_pool, self._pool
        if found is not None and (last is None or last.amounts != found.amounts):
            self._write(store, [found])
            self._pool = found

    def _prune(self, store: HistoryStore) -> None:
        """Prune a few old jobs; the next few with the next renewal, else an hour later."""
        if self._days and self._clock() >= self._prune_at:
            pruned = store.prune(int(self._now()) - self._days * DAY, PRUNED_AT_ONCE)
            self._prune_at = self._clock() + (0.0 if pruned else PRUNE_SECONDS)

    def _write(self, store: HistoryStore, rows: Sequence[Row]) -> None:
        for first in range(0, len(rows), BATCH):
            self._write_batch(store, rows[first : first + BATCH])

    def _write_batch(self, store: HistoryStore, rows: Sequence[Row]) -> None:
        """Write rows in one transaction. A row that cannot be written keeps no other row from the database."""
        try:
            self._meter.count(ROWS, by=store.write(rows))
        except HistoryError:
            raise
        except Exception:
            if len(rows) == 1:
                log.exception("a row of the history is left out: %s", precedence.key(rows[0]))
                return
            middle = len(rows) // 2
            self._write_batch(store, rows[:middle])
            self._write_batch(store, rows[middle:])


class PoolReader:
    """Asks a coordinator what the pool has, and notes the answer. Without one the pool stays as it was last known."""

    def __init__(
        self,
        read: Callable[[], Amounts],
        note: Callable[[Amounts], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read` returns what the pool has, nothing if it has no limits, and may raise CoordinatorError, ClusterError
        and ValueError."""
        self._read = read
        self._note = note
        self._clock = clock
        self._ask_at = clock()

    def run(self, stop: threading.Event, turns: Turns) -> None:
        """Ask until stopped, as one of the loops in `turns`."""
        turn = turns.loop("pool")
        self.step()  # before the first pause: jobs may run at once
        for _ in turn.rounds(stop, POOL_AGAIN_SECONDS):
            self.step()

    def step(self) -> None:
        """Ask if it is time."""
        if self._clock() < self._ask_at:
            return
        try:
            self._note(self._read())
        except (CoordinatorError, errors.ClusterError, ValueError) as error:
            log.debug("the size of the pool is not known: %s", error)
            return
        except Exception:
            log.exception("the answer about the pool cannot be read")
        self._ask_at = self._clock() + POOL_SECONDS
