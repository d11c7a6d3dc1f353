"""Writes the statuses of pods to the API server.

One rule: only the newest status of a pod matters, and it is written until the API server accepts it or the pod is
gone. The thread that runs pods never waits for the API server.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from crds.api_resources import PODS
from embedded.node.status import pod_status
from embedded.pod import LocalPod
from embedded.status_conditions import Status, differs, well_formed
from kube import errors
from kube.api import Cluster
from kube.object_errors import ObjectErrors

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Report:
    """A status to write, the removal of the pod, or both of these."""

    pod: LocalPod
    status: Status | None = None
    steps: tuple[Status, ...] = ()
    """What is written before the status, so that watches show it, too."""
    remove: bool = False
    """Whether to remove the pod: it is to be deleted, and none of its processes runs any more."""


class Reporter:
    """A thread that writes statuses, the statuses of one pod in their order."""

    def __init__(self, cluster: Cluster, errors: ObjectErrors | None = None) -> None:
        self._cluster = cluster
        self._errors = errors or ObjectErrors()
        self._reports: dict[str, Report] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="pod-status")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Try once to write each waiting report, then end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def report(self, report: Report) -> None:
        """Queue a status, the removal of a pod, or both of these. A newer status replaces an older one of the same
        pod."""
        with self._changed:
            before = self._reports.get(report.pod.uid)
            if before is not None:
                report = replace(
                    report,
                    status=report.status or before.status,
                    steps=before.steps + report.steps,
                    remove=report.remove or before.remove,
                )
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
                self._retry(report)

    def _retry(self, report: Report) -> None:
        """Queue a report again, merged with a newer one of the same pod, and wait.

        The steps of the repeated report are past, as for a kubelet that cannot reach the API server.
        """
        with self._changed:
            if self._stopping:
                return
            newer = self._reports.get(report.pod.uid) or Report(report.pod)
            status, remove = newer.status or report.status, newer.remove or report.remove
            self._reports[report.pod.uid] = replace(newer, status=status, remove=remove)
            self._changed.wait_for(lambda: self._stopping, timeout=_RETRY_SECONDS)

    def _write(self, report: Report) -> bool:
        """Write a report; return False if it has to be written again."""
        pod = report.pod
        try:
            for status in (*report.steps, *([report.status] if report.status else [])):
                patch = {"metadata": {"uid": pod.uid}, "status": status}
                self._cluster.patch(PODS, pod.name, patch, pod.namespace, subresource="status")
            if report.remove:
                self._cluster.delete(PODS, pod.name, pod.namespace, uid=pod.uid, grace_period_seconds=0)
        except (errors.NotFound, errors.Conflict):
            return True  # the pod is gone, or another pod has its name
        except errors.Invalid:
            logger.exception("the API server rejected the status of pod %s", pod)
            return True
        except errors.ClusterError as e:
            logger.warning("the status of pod %s is not written yet: %s", pod, e)
            return False
        except Exception as e:
            self._errors.record(f"the status of Pod {pod}", e)
            return True
        self._errors.clear(f"the status of Pod {pod}")
        return True


class PodStatusWriter:
    """The status of one pod as this node wrote it last."""

    def __init__(self, pod: LocalPod, reporter: Reporter) -> None:
        self._reporter = reporter
        self.content: Mapping[str, Any] = pod.status
        self.released = False
        """Whether the removal of the pod has been queued."""

    def write(self, pod: LocalPod, status: Status) -> None:
        """Queue a status, or a part of it, unless it is the same as before.

        The ends of its containers are written before its last phase.
        """
        if differs(status, self.content):
            ends = pod_status.last_ends(status, self.content)
            self.content = {**self.content, **status}
            self._reporter.report(Report(pod, status, ends))

    def show(self, pod: LocalPod, status: Status) -> None:
        """Queue a status that no later status replaces before it is written."""
        self.content = {**self.content, **status}
        self._reporter.report(Report(pod, steps=(status,)))

    def release(self, pod: LocalPod) -> None:
        """Queue the removal of a pod of which no process runs any more."""
        self.released = True
        self._reporter.report(Report(pod, remove=True))

    def with_other_conditions(self, pod: LocalPod) -> Mapping[str, Any]:
        """Return the status that this node wrote last, with the conditions that others wrote."""
        node_conditions = {item["type"]: item for item in well_formed(self.content.get("conditions"))}
        all_conditions = {item["type"]: item for item in well_formed(pod.status.get("conditions"))}
        return {**self.content, "conditions": list((all_conditions | node_conditions).values())}
