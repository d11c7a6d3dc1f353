"""The JSON document of the reports of a job's pods.

One rule: the numbers of the job are those of the pods that it has now; if none of these has reported, those of all that
ever did.

    step               the highest step
    since              when it was first reported
    stepsPerSecond     the speed at which the pod that reported it first has come there; missing if unknown
    samplesPerSecond   the sum over the pods; missing if no pod tells it
    reportedAt         when the last report came
    pods               the last report of each pod, those included that are gone

A report of the Kubeflow Trainer protocol has `protocol: kubeflow`, and may have the numbers of its own estimate, as has
the job, if the pod with the highest step reports so:

    progressPercentage, estimatedRemainingSeconds   as in the report
    totalSteps                                      the number of steps of the whole training
"""

from collections.abc import Collection, Mapping
from typing import Any

from coordinator.reports.report_values import JobReports, PodReport, Progress
from crds import timestamps

Document = dict[str, Any]
PROTOCOL, KUBEFLOW = "protocol", "kubeflow"
"""The field of a report that did not come by torchq's own protocol, and its value."""


def describe(reports: JobReports | None, existing: Collection[str] = ()) -> Document:
    """Return the document of a job's reports; `existing` are the names of its pods, as far as they are known."""
    pods = reports.pods if reports is not None else {}
    current = {name: report for name, report in pods.items() if name in existing} or pods
    listed = [_pod(name, report) for name, report in sorted(pods.items())]
    return (_summary(current) if current else {}) | {"pods": listed}


def _summary(pods: Mapping[str, PodReport]) -> Document:
    first = min(pods.values(), key=lambda report: (-report.step, report.moved_at))
    samples = [each.samples_per_second for each in pods.values() if isinstance(each.samples_per_second, int | float)]
    return {
        "step": first.step,
        "since": timestamps.format_time(first.moved_at),
        **_known(stepsPerSecond=first.steps_per_second, samplesPerSecond=sum(samples) if samples else None),
        **_progress(first.progress),
        "reportedAt": timestamps.format_time(max(report.at for report in pods.values())),
    }


def _pod(name: str, report: PodReport) -> Document:
    return {
        "pod": name,
        "step": report.step,
        "since": timestamps.format_time(report.moved_at),
        "reportedAt": timestamps.format_time(report.at),
        **_known(
            stepsPerSecond=report.steps_per_second,
            samplesPerSecond=report.samples_per_second,
            loss=report.loss,
            gauges=dict(report.gauges) or None,
            checkpoint=report.checkpoint,
        ),
        **({} if report.progress is None else {PROTOCOL: KUBEFLOW}),
        **_progress(report.progress),
    }


def _progress(progress: Progress | None) -> Document:
    if progress is None:
        return {}
    return _known(
        progressPercentage=progress.percent,
        estimatedRemainingSeconds=progress.remaining_seconds,
        totalSteps=progress.steps,
    )


def _known(**fields: Any) -> Document:
    return {name: value for name, value in fields.items() if value is not None}
