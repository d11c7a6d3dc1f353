"""The bodies of reports: which bodies are accepted, and which are refused with the name of the wrong field."""

import contextlib
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.reports import body
from coordinator.reports.body import InvalidReport
from coordinator.reports.report_values import Report


def text(**changes: Any) -> bytes:
    return orjson.dumps({"pod": "job-worker-0", "step": 3, **changes})


def test_a_whole_report_is_taken() -> None:
    sent = text(
        samplesPerSecond=12, loss=-0.5, gauges={"grad_norm": 1, "_x9": 2.5, "none": None}, checkpoint=17, last=True
    )
    assert body.parse(sent) == Report(
        pod="job-worker-0",
        step=3,
        samples_per_second=12.0,
        loss=-0.5,
        gauges={"grad_norm": 1.0, "_x9": 2.5},
        checkpoint=17,
        last=True,
    )


def test_pod_and_step_are_enough_and_unknown_fields_are_ignored() -> None:
    assert body.parse(text(time=0, rank=[1], loss=None)) == Report(pod="job-worker-0", step=3)


def test_what_is_no_number_is_taken_as_text() -> None:
    found = body.parse(text(loss="NaN", samplesPerSecond="inf", gauges={"is_warm": True, "lr": "0.1"}))
    assert (found.loss, found.samples_per_second, found.gauges) == ("NaN", "inf", {"is_warm": "true", "lr": "0.1"})


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"step=1", "not JSON"),
        (b'{"pod": "p", "step": 1, "loss": NaN}', "NaN"),
        (b'{"pod": "p", "step": 1, "loss": 1e999}', "not JSON"),
        (b"[" * 8000, "not JSON"),
        (b'{"a":' * 1600 + b"1" + b"}" * 1600, "not JSON"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (text(pod=None), "^pod: "),
        (text(pod=""), "^pod: "),
        (text(pod="p" * 254), "^pod: "),
        (text(pod=["p"]), "^pod: "),
        (text(step=None), "^step: is missing"),
        (text(step=-1), "^step: "),
        (text(step=True), "^step: "),
        (text(step=1.0), "^step: "),
        (text(step="1"), "^step: "),
        (text(step=2**53), "^step: "),
        (b'{"pod": "p", "step": 123456789012345678901234567890}', "^step: "),
        (text(samplesPerSecond=-1), "^samplesPerSecond: "),
        (text(samplesPerSecond=[1]), "^samplesPerSecond: "),
        (text(last=1), "^last: must be true or false"),
        (text(loss={}), "^loss: "),
        (text(loss="9" * 33), "^loss: .* text of at most 32 characters"),
        (text(gauges=[]), "^gauges: "),
        (text(gauges={f"g{n}": 1 for n in range(17)}), "^gauges: .* 16 "),
        (text(gauges={"": 1}), "^gauges: "),
        (text(gauges={"a" * 64: 1}), "^gauges: "),
        (text(gauges={"\x1b[31m": 1}), "^gauges: "),
        (text(gauges={"9a": 1}), "^gauges: "),
        (text(gauges={"a\n": 1}), "^gauges: "),
        (text(gauges={"lr": []}), "^lr: "),
        (text(checkpoint=-1), "^checkpoint: "),
        (text(checkpoint=2**63), "^checkpoint: "),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_report_is_refused_with_its_reason(sent: bytes, reason: str) -> None:
    with pytest.raises(InvalidReport, match=reason):
        body.parse(sent)


@given(st.binary(max_size=200) | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(repr))
def test_any_bytes_are_a_report_or_refused(sent: bytes | str) -> None:
    with contextlib.suppress(InvalidReport):
        body.parse(sent if isinstance(sent, bytes) else sent.encode("utf-8", "replace"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
NAMES = st.sampled_from(["pod", "step", "samplesPerSecond", "loss", "gauges", "checkpoint"])


@given(st.dictionaries(NAMES, JSON))
def test_any_object_is_a_report_within_its_bounds_or_refused(fields: dict[str, Any]) -> None:
    try:
        report = body.parse(json.dumps(fields).encode())
    except InvalidReport:
        return
    assert report.pod == fields["pod"]
    assert 0 <= report.step == fields["step"] < 2**53
    assert len(report.gauges) <= body.MOST_GAUGES
