"""The port for reports of a coordinator that knows the newest jobs and pods.

One rule: the product decides which reports are accepted; this module only delivers them.
"""

from collections.abc import Callable

import orjson

from coordinator.cache import views
from coordinator.cache.views import JobView
from coordinator.http.bounded_server import Question
from coordinator.http.report_api import ReportApi
from coordinator.reports.batches import ReportBatches
from coordinator.reports.report_store import ReportStore
from coordinator.reports.tokens import ReportKey
from crds.api_resources import PODS, TORCHJOBS
from crds.keys import JobKey
from kube import errors
from tests.faults.api import ApiClient
from tests.faults.scenarios.scenario import NAMESPACE

KEY = ReportKey(b"a key of the installation")


class ReportPort:
    """Takes reports as a coordinator does, each report in its own batch."""

    def __init__(self, client: ApiClient, store: ReportStore, clock: Callable[[], float]) -> None:
        self._client = client
        self._batches = ReportBatches(store, clock=clock)
        self._api = ReportApi(
            key=KEY,
            batches=self._batches,
            find=self._find,
            has_pod=self._has_pod,
            is_ready=lambda: True,
            world=lambda *_: None,
        )

    def send(self, job: str, pod: str, step: int, uid: str) -> bool:
        """Send a report about a pod of a job, with the token of the job that has this uid. Return whether the report is
        accepted.
        """
        body = orjson.dumps({"pod": pod, "step": step})
        path = f"/v1/jobs/{NAMESPACE}/{job}/report"
        answer = self._api.answer_quick(Question(path, "", "POST", f"Bearer {KEY.token(uid)}", body=body))
        self._batches.write()
        return answer is not None and answer.code == 200

    def _find(self, namespace: str, name: str) -> JobView | None:
        try:
            return views.job_view(self._client.get(TORCHJOBS, name, namespace))
        except errors.NotFound:
            return None

    def _has_pod(self, job: JobKey, name: str) -> bool:
        try:
            return views.pod_view(self._client.get(PODS, name, job.namespace)).job == job
        except errors.NotFound:
            return False
