"""The result in a container's termination message, whatever text the container wrote there."""

from typing import Any

import pytest

from crds.torchjob.status import MOST_RESULT
from reconcilers.views import pod_result, pod_view
from tests.reconcilers.views.test_pod_view import ended, manifest

RESULT = '{"torchq-result": {"accuracy": 0.95, "name": "é"}}'
LARGE = MOST_RESULT - len('{"a":""}')


def pod(message: Any, phase: str = "Succeeded", code: int = 0) -> dict[str, Any]:
    return manifest(phase, containerStatuses=[ended("log", 0, "Completed", RESULT), ended("torch", code, "", message)])


@pytest.mark.parametrize(
    ("message", "result"),
    [
        pytest.param(RESULT, '{"accuracy":0.95,"name":"é"}', id="a result"),
        pytest.param('{"torchq-result":{}}', "{}", id="an empty result"),
        pytest.param(f'{{"torchq-result":{{"a":"{"x" * LARGE}"}}}}', f'{{"a":"{"x" * LARGE}"}}', id="the largest"),
        pytest.param(f'{{"torchq-result":{{"a":"{"x" * (LARGE + 1)}"}}}}', "", id="too large"),
        pytest.param(f'{{"torchq-result":{{"a":"{"é" * (LARGE // 2 + 1)}"}}}}', "", id="too many bytes"),
        pytest.param("", "", id="nothing"),
        pytest.param("ValueError: no data", "", id="the end of a log"),
        pytest.param('{"torchq-result":{"a":1', "", id="cut off"),
        pytest.param('{"torchq-result":{"a":NaN}}', "", id="a number that JSON lacks"),
        pytest.param('{"torchq-result":[1]}', "[1]", id="a list"),
        pytest.param('{"torchq-result":4}', "4", id="a number"),
        pytest.param('{"torchq-result":""}', '""', id="an empty text"),
        pytest.param('{"torchq-result":false}', "false", id="a false one"),
        pytest.param('{"torchq-result":{"a":1},"more":2}', "", id="more than a result"),
        pytest.param('{"torchq-result":' + '{"a":' * 2000 + "1" + "}" * 2001, "", id="nested too deeply"),
        pytest.param('{"torchq-result":{"a":"\\ud800"}}', "", id="no text"),
        pytest.param('{"torchq-result":{"a":1}}\n', '{"a":1}', id="a line"),
        pytest.param('step 1\n{"torchq-result":{"a":1}}', "", id="a log that ends with one"),
    ],
)
def test_result_is_read_only_from_a_message_that_is_one(message: str, result: str) -> None:
    assert pod_result.read(pod(message)) == result


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_view_has_a_result_once_the_main_container_has_ended_for_good(phase: str) -> None:
    running = {"name": "torch", "state": {"running": {}}, "lastState": ended("torch", 1, "", RESULT)["state"]}
    found = manifest(phase, containerStatuses=[running]) if phase == "Running" else pod(RESULT, phase, 1)
    assert pod_view.trim(found).has_result is (phase != "Running")
    assert not pod_view.trim(pod("no result", "Succeeded")).has_result


def test_failed_pod_with_a_result_is_explained_by_its_log() -> None:
    failed = pod(RESULT, "Failed", 1)
    view = pod_view.trim(failed)
    assert (view.message, view.unexplained, pod_view.needs_log(failed)) == ("", True, True)
    log = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nValueError: no data\n'
    explained = pod_view.explain(view, failed, log)
    assert (explained.message, explained.unexplained) == ("ValueError: no data", False)


def test_exit_code_that_torchrun_reports_is_read_from_the_log_beside_a_result() -> None:
    failed = pod(RESULT, "Failed", 1)
    log = "W0102 torch/distributed/elastic/agent: Received 15 death signal, shutting down workers"
    assert pod_view.explain(pod_view.trim(failed), failed, log).cause == 143
    assert pod_view.explain(pod_view.trim(pod("said", "Failed", 1)), pod("said", "Failed", 1), log).cause is None
