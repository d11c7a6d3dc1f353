"""Writes what the node found to the API server.

One rule: only the newest status of a pod matters, and it is written until it is accepted or the pod is gone; whoever
runs pods never waits for the API server.
"""

import logging
import threading
from dataclasses import dataclass

from crds.api_resources import PODS
from embedded.node.status.pod_status import Status
from embedded.pod import LocalPod
from kube import errors
from kube.api import Cluster
from kube.object_errors import ObjectErrors

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Report:
    """What is to be written about a pod."""

    pod: LocalPod
    status: Status | None
    remove: bool = False
    """Nothing of it runs any more and it was to be deleted: let it go."""


class Reporter:
    """A thread that writes statuses, each pod's in order."""

    def __init__(self, cluster: Cluster, errors: ObjectErrors | None = None) -> None:
        self._cluster = cluster
        self._errors = errors or ObjectErrors()
        self._reports: dict[str, Report] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="pod-status")

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write what is waiting, once, and end."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def report(self, report: Report) -> None:
        """Have a pod's status written, or the pod let go, or both. Newer reports replace older ones."""
        with self._changed:
            before = self._reports.get(report.pod.uid)
            if before is not None:
                report = Report(report.pod, report.status or before.status, report.remove or before.remove)
            self._reports[report.pod.uid] = report
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._reports or self._stopping)
                if not self._reports:
                    return
                report = self._reports.pop(next(iter(self._reports)))
            if not self._write(report):
                self._again(report)

    def _again(self, report: Report) -> None:
        """Try later, unless there is news by then."""
        with self._changed:
            if self._stopping:
                return
            newer = self._reports.get(report.pod.uid)
            status = (newer.status if newer else None) or report.status
            remove = report.remove or bool(newer and newer.remove)
            self._reports[report.pod.uid] = Report(newer.pod if newer else report.pod, status, remove)
            self._changed.wait_for(lambda: self._stopping, timeout=_RETRY_SECONDS)

    def _write(self, report: Report) -> bool:
        """Whether the report is done with."""
        pod = report.pod
        try:
            if report.status is not None:
                patch = {"metadata": {"uid": pod.uid}, "status": report.status}
                self._cluster.patch(PODS, pod.name, patch, pod.namespace, subresource="status")
            if report.remove:
                self._cluster.delete(PODS, pod.name, pod.namespace, uid=pod.uid, grace_period_seconds=0)
        except (errors.NotFound, errors.Conflict):
            return True  # gone, or another pod has its name
        except errors.Invalid:
            logger.exception("the API server does not take the status of pod %s", pod)
            return True
        except errors.ClusterError as e:
            logger.warning("the status of pod %s is not written yet: %s", pod, e)
            return False
        except Exception as e:
            self._errors.met(f"the status of Pod {pod}", e)
            return True
        self._errors.over(f"the status of Pod {pod}")
        return True
