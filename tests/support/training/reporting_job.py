"""A coordinator's port for reports, with one job whose pod reports.

One rule: the port is real; only the store and the clock are doubles.
"""

import contextlib
from collections.abc import Iterator, Mapping

from coordinator.cache.views import JobView
from coordinator.http import report_port
from coordinator.http.bounded_server import HttpServer
from coordinator.http.report_api import ReportApi
from coordinator.reports.batches import ReportBatches
from coordinator.reports.report_values import PodReport
from coordinator.reports.tokens import ReportKey
from tests.doubles.memory_reports import MemoryReports
from tests.support.clock import Clock
from tests.support.coordinator.builders import KEY, job

POD = "train-worker-0"
_KEY = ReportKey(b"a key of the installation")


class ReportingJob:
    """The job, and the facts that its coordinator knows."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.save_request = 0
        self._store = MemoryReports(self.clock)
        self._batches = ReportBatches(self._store, clock=self.clock)
        self.api = ReportApi(
            key=_KEY,
            batches=self._batches,
            find=lambda namespace, name: self._view() if (namespace, name) == (KEY.namespace, KEY.name) else None,
            has_pod=lambda key, pod: (key, pod) == (KEY, POD),
            is_ready=lambda: True,
            world=lambda *_: None,
        )
        self.port = 0

    @property
    def access(self) -> tuple[str, str, str, str]:
        """The URL, the token, the job and the pod."""
        return f"http://127.0.0.1:{self.port}", _KEY.token(KEY.uid), f"{KEY.namespace}/{KEY.name}", POD

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables that a worker gives to the pod."""
        names = ("TORCHQ_REPORT_URL", "TORCHQ_REPORT_TOKEN", "TORCHQ_JOB", "TORCHQ_POD")
        return dict(zip(names, self.access, strict=True))

    def newest(self) -> PodReport | None:
        """Return the newest report of the pod."""
        self._batches.write()
        known = self._store.read([KEY])
        return known[KEY].pods.get(POD) if KEY in known else None

    def _view(self) -> JobView:
        return job(save_request=self.save_request)


@contextlib.contextmanager
def reporting_job() -> Iterator[ReportingJob]:
    """Serve the port."""
    found = ReportingJob()
    server = HttpServer(found.api.answer_quick, found.api.answer_slow, dict, report_port.LIMITS)
    with server.running("127.0.0.1", 0) as found.port:
        yield found
