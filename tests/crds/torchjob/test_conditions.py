"""The conditions of a job agree with its phase and with each other, and carry the time of their last change."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.torchjob import conditions
from crds.torchjob.conditions import FINISHED, NEXT, TRUE_IN, Conditions, Phase
from crds.torchjob.status import TorchJobStatus

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def true(found: Conditions) -> set[str]:
    return {condition.type for condition in found if condition.status == "True"}


def test_transition_time_changes_only_with_the_status() -> None:
    first = conditions.set_condition((), "Queued", True, "Waiting", "one", at(0), 1)
    again = conditions.set_condition(first, "Queued", True, "StillWaiting", "two", at(5), 2)
    (condition,) = again
    assert (condition.last_transition_time, condition.reason, condition.message) == (at(0), "StillWaiting", "two")
    assert condition.observed_generation == 2
    (condition,) = conditions.set_condition(again, "Queued", False, "Admitted", "", at(9), 2)
    assert (condition.status, condition.last_transition_time) == ("False", at(9))


def test_changed_condition_keeps_its_place() -> None:
    found = conditions.set_condition((), "Queued", True, "A", "", at(0), 1)
    found = conditions.set_condition(found, "Admitted", True, "B", "", at(0), 1)
    found = conditions.set_condition(found, "Queued", False, "C", "", at(1), 1)
    assert [condition.type for condition in found] == ["Queued", "Admitted"]


def test_long_message_is_cut_to_the_limit_of_the_schema() -> None:
    (condition,) = conditions.set_condition((), "Failed", True, "A", "no data " * 5000, at(0), 1)
    assert 32_760 < len(condition.message) <= 32_768
    assert condition.message.endswith((" no ...", " data ..."))


@given(st.data())
def test_conditions_match_the_phase_after_any_transitions(data: st.DataObject) -> None:
    phase: Phase = ""
    found: Conditions = ()
    for step in range(12):
        if not NEXT[phase]:
            break
        before = found
        phase = data.draw(st.sampled_from(NEXT[phase]))
        found = conditions.enter(found, phase, "Reason", "message", at(step), 1)
        assert true(found) == set(TRUE_IN[phase])
        assert conditions.phase_of(found) == phase
        for old in before:
            new = conditions.find(found, old.type)
            assert new is not None
            assert (new.last_transition_time == old.last_transition_time) == (new.status == old.status)


@pytest.mark.parametrize("end", FINISHED)
@pytest.mark.parametrize("phase", [phase for phase in TRUE_IN if phase not in FINISHED])
def test_finished_phase_cannot_change(end: Phase, phase: Phase) -> None:
    found = conditions.enter((), end, "Reason", "message", at(0), 1)
    assert NEXT[end] == ()
    with pytest.raises(ValueError, match="cannot become"):
        conditions.enter(found, phase, "Reason", "message", at(1), 1)


def test_entering_a_phase_again_changes_nothing() -> None:
    found = conditions.enter((), "Queued", "Reason", "message", at(0), 1)
    assert conditions.enter(found, "Queued", "Reason", "message", at(7), 1) == found


def test_table_in_the_docstring_matches_the_code() -> None:
    rows = {}
    for line in (conditions.__doc__ or "").splitlines():
        cells = [cell.strip() for cell in line.strip().split("  ") if cell.strip()]
        if len(cells) == 4 and cells[0] != "phase":
            rows[cells[0].replace("(none)", "")] = (cells[1], cells[3])
    assert rows == {phase: (", ".join(TRUE_IN[phase]) or "-", " ".join(NEXT[phase]) or "-") for phase in TRUE_IN}


def test_status_manifest_has_the_format_of_kubernetes() -> None:
    found = conditions.enter((), "Failed", "BackoffLimitExceeded", "train-worker-0: exit code 1", at(0), 3)
    assert TorchJobStatus(phase="Failed", conditions=found).manifest()["conditions"] == [
        {
            "type": "Failed",
            "status": "True",
            "reason": "BackoffLimitExceeded",
            "message": "train-worker-0: exit code 1",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 3,
        }
    ]
