"""The bodies that the callback of Hugging Face transformers 5.24.0 sends, and what other clients may send."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.reports import body, kubeflow_body
from coordinator.reports.body import InvalidReport
from coordinator.reports.report_values import Progress, Report

POD = "job-master-0"
FIRST = (
    b'{"trainerStatus": {"lastUpdatedTime": "2026-11-29T23:18:24.101512+00:00", "progressPercentage": 0, "metrics": '
    b'[{"name": "total_steps", "value": "900"}]}}'
)
STEP = (
    b'{"trainerStatus": {"lastUpdatedTime": "2026-11-29T23:18:51.422064+00:00", "progressPercentage": 35, '
    b'"estimatedRemainingSeconds": 88, "metrics": [{"name": "loss", "value": "3.4622303009033204"}, '
    b'{"name": "grad_norm", "value": "1.0733362436294556"}, {"name": "learning_rate", "value": '
    b'"3.338888888888889e-05"}, {"name": "epoch", "value": "4.6875"}, {"name": "current_step", "value": "317"}, '
    b'{"name": "total_steps", "value": "900"}, {"name": "current_epoch", "value": "4.95"}]}}'
)
LAST = (
    b'{"trainerStatus": {"lastUpdatedTime": "2026-11-29T23:19:58.101512+00:00", "progressPercentage": 100, '
    b'"estimatedRemainingSeconds": 0, "metrics": [{"name": "loss", "value": "3.45"}, {"name": "train_loss", "value": '
    b'"3.463105379740397"}]}}'
)


def status(**fields: Any) -> bytes:
    return json.dumps({"trainerStatus": fields}).encode()


def test_the_reports_of_transformers_are_understood() -> None:
    assert kubeflow_body.parse(FIRST, POD) == Report(pod=POD, step=None, progress=Progress(percent=0, steps=900))
    assert kubeflow_body.parse(STEP, POD) == Report(
        pod=POD,
        step=317,
        loss=3.4622303009033204,
        gauges={
            "grad_norm": 1.0733362436294556,
            "learning_rate": 3.338888888888889e-05,
            "epoch": 4.6875,
            "current_epoch": 4.95,
        },
        progress=Progress(percent=35, remaining_seconds=88, steps=900),
    )
    last = kubeflow_body.parse(LAST, POD)
    assert last is not None
    assert (last.step, last.last, last.gauges) == (None, True, {"train_loss": 3.463105379740397})


def test_other_metrics_become_gauges_within_the_bounds_of_a_report() -> None:
    names = {"eval/acc": "nan", "7": "2", "x" * 80: "1", "note": "y" * 50, "current_step": "1.5"}
    found = kubeflow_body.parse(status(metrics=[{"name": key, "value": text} for key, text in names.items()]), POD)
    assert found is not None
    assert found.gauges == {"eval_acc": "nan", "_7": 2.0, "x" * 63: 1.0, "note": "y" * 32}
    assert (found.step, found.last, found.progress) == (None, False, Progress())
    many = kubeflow_body.parse(status(metrics=[{"name": f"m{each}", "value": "1"} for each in range(99)]), POD)
    assert many is not None
    assert len(many.gauges) == body.MOST_GAUGES


@pytest.mark.parametrize("sent", [b"null", b"{}", b'{"trainerStatus": null, "more": 1}'])
def test_a_body_without_a_status_is_no_report(sent: bytes) -> None:
    assert kubeflow_body.parse(sent, POD) is None


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"", "not JSON"),
        (b"[]", "^trainerStatus: "),
        (status(progressPercentage=-1), "^progressPercentage: .* from 0 to 100"),
        (status(progressPercentage=True), "^progressPercentage: "),
        (status(progressPercentage=1.5), "^progressPercentage: "),
        (status(estimatedRemainingSeconds=-1), "^estimatedRemainingSeconds: "),
        (status(metrics={}), "^metrics: "),
        (status(metrics=[{"name": "loss", "value": 1}]), "^metrics: "),
        (status(metrics=[{"name": "", "value": "1"}]), "^metrics: "),
        (status(metrics=["loss"]), "^metrics: "),
    ],
)
def test_other_bodies_are_refused_with_the_reason(sent: bytes, reason: str) -> None:
    with pytest.raises(InvalidReport, match=reason):
        kubeflow_body.parse(sent, POD)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["metrics", "name", "value"]), inner),
    max_leaves=8,
)


@given(ANY)
def test_no_body_raises_anything_else(value: Any) -> None:
    try:
        found = kubeflow_body.parse(json.dumps({"trainerStatus": value}).encode(), POD)
    except InvalidReport:
        return
    assert found is None or len(found.gauges) <= body.MOST_GAUGES
