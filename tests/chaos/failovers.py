"""The faults of a Sentinel installation during a run.

One rule: the main thread only signals processes. Commands to servers, which may not answer, are sent by the thread of
the admin (`submit`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.chaos import stores
from tests.chaos.plan import Fault
from tests.support.sentinel import MAX_LAG_SECONDS, Node

AWAY_SECONDS = 4.0
"""How long a master that was killed as a part of a fault stays away: longer than a failover takes."""


@dataclass
class Failovers:
    """The Sentinel faults of a run. `kill` and `stop` take the name of a process and a number of seconds."""

    store: stores.Sentinels
    kill: Callable[[str, float], None]
    stop: Callable[[str, float], None]
    later: Callable[[float, Callable[[], None]], None]
    submit: Callable[[Callable[[], object]], object]

    def strike(self, fault: Fault) -> None:
        """Begin a fault. If no sentinel answers, no master is known, and a fault of the master does nothing."""
        installation = self.store.installation
        if fault.target == "silence":
            for node in installation.sentinels:
                self.kill(node.name, fault.seconds)
            return
        try:
            master = installation.master()
        except StopIteration:
            return
        match fault.target:
            case "kill":
                self.kill(master.name, fault.seconds)
            case "stop":
                self.stop(master.name, fault.seconds)
            case "failover":
                self._insist(installation.fail_over)
            case "stale":
                self._insist(partial(installation.cut_off_replicas, master, lagging=True))
                self.later(fault.seconds, partial(self.kill, master.name, AWAY_SECONDS))
            case "cutoff":
                self._insist(partial(installation.cut_off, master, lagging=True))
                self.later(MAX_LAG_SECONDS, partial(self._insist, partial(installation.notice_lag, master)))
                self.later(fault.seconds, partial(self._rejoin, master))

    def _rejoin(self, server: Node) -> None:
        self._insist(partial(self.store.installation.rejoin, server))

    def _insist(self, deed: Callable[[], object]) -> None:
        self.submit(partial(stores.insist, deed))
