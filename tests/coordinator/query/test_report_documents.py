"""The document of the reports of a job: the numbers of the job, and the last report of each pod."""

from coordinator.query import report_documents
from coordinator.reports.report_values import JobReports, PodReport

REPORTS = JobReports(
    read_at=100.0,
    pods={
        "job-worker-1": PodReport(step=30, at=95.0, moved_at=80.0, steps_per_second=2.5, samples_per_second=10.0),
        "job-worker-0": PodReport(
            step=30, at=90.0, moved_at=90.0, steps_per_second=9.0, samples_per_second=0.5, loss=0.25, gauges={"lr": 1.0}
        ),
        "job-worker-7": PodReport(step=99, at=10.0, moved_at=10.0, samples_per_second=1000.0, checkpoint=4),
    },
)


def test_the_numbers_of_a_job_are_those_of_its_present_pods() -> None:
    found = report_documents.describe(REPORTS, {"job-worker-0", "job-worker-1", "job-worker-2"})
    assert {name: value for name, value in found.items() if name != "pods"} == {
        "step": 30,
        "since": "1970-01-01T00:01:20Z",
        "stepsPerSecond": 2.5,
        "samplesPerSecond": 10.5,
        "reportedAt": "1970-01-01T00:01:35Z",
    }


def test_without_known_pods_all_reports_count() -> None:
    for existing in ((), {"other"}):
        found = report_documents.describe(REPORTS, existing)
        assert (found["step"], found["samplesPerSecond"]) == (99, 1010.5)
        assert "stepsPerSecond" not in found


def test_each_pod_has_its_last_report() -> None:
    [first, _, last] = report_documents.describe(REPORTS)["pods"]
    moment = "1970-01-01T00:01:30Z"
    assert first == {
        "pod": "job-worker-0",
        "step": 30,
        "since": moment,
        "reportedAt": moment,
        "stepsPerSecond": 9.0,
        "samplesPerSecond": 0.5,
        "loss": 0.25,
        "gauges": {"lr": 1.0},
    }
    assert (last["pod"], last["checkpoint"]) == ("job-worker-7", 4)


def test_what_is_no_number_is_shown_and_not_summed() -> None:
    pods = {
        "job-worker-0": PodReport(step=1, at=1.0, moved_at=1.0, samples_per_second="inf", loss="NaN"),
        "job-worker-1": PodReport(step=1, at=1.0, moved_at=1.0, samples_per_second=2.0),
    }
    found = report_documents.describe(JobReports(read_at=1.0, pods=pods))
    assert found["samplesPerSecond"] == 2.0
    assert [found["pods"][0][name] for name in ("samplesPerSecond", "loss")] == ["inf", "NaN"]


def test_a_job_without_reports_has_no_numbers() -> None:
    assert report_documents.describe(None, {"job-worker-0"}) == {"pods": []}
