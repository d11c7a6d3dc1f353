"""`torchq doctor` as a CronJob runs it, and the metrics of kube-state-metrics about this CronJob.

One rule: the outcome is the outcome of the real command. Only the page is made up, since one machine has no CronJobs.
"""

import contextlib
import http.server
import threading
import time
from collections.abc import Callable

NAME = "torchq-doctor"
PERIOD_SECONDS = 10.0
"""The ten minutes of the CronJob's schedule, scaled like the rules."""
_PAGE = """\
# HELP kube_cronjob_created Unix creation timestamp
# TYPE kube_cronjob_created gauge
kube_cronjob_created{{namespace="{0}",cronjob="{1}"}} {2:.3f}
# HELP kube_cronjob_status_last_schedule_time The last time the job was scheduled.
# TYPE kube_cronjob_status_last_schedule_time gauge
kube_cronjob_status_last_schedule_time{{namespace="{0}",cronjob="{1}"}} {3:.3f}
# HELP kube_cronjob_status_last_successful_time The last time the job succeeded.
# TYPE kube_cronjob_status_last_successful_time gauge
kube_cronjob_status_last_successful_time{{namespace="{0}",cronjob="{1}"}} {4:.3f}
"""


class DoctorRuns:
    """The runs of `torchq doctor` in one thread, and the page about these runs in another thread."""

    def __init__(self, namespace: str, check: Callable[[], bool]) -> None:
        self._namespace = namespace
        self._check = check
        self._created = self._scheduled = self._succeeded = time.time()
        self._stopping = threading.Event()
        runs = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = runs.page().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # a scrape has its own time limit
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._threads = [
            threading.Thread(target=self._server.serve_forever, name="doctor-page"),
            threading.Thread(target=self._run, name="doctor-runs"),
        ]

    @property
    def port(self) -> int:
        """The port of the page."""
        return int(self._server.server_address[1])

    def page(self) -> str:
        """Return the page."""
        return _PAGE.format(self._namespace, NAME, self._created, self._scheduled, self._succeeded)

    def start(self) -> None:
        """Begin to run and to serve."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End both threads."""
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._scheduled = time.time()
            if self._check():
                self._succeeded = time.time()
            self._stopping.wait(PERIOD_SECONDS)
