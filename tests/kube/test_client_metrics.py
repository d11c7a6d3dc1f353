"""The client counts each attempt of a request by its status and method, and measures the time to the answer."""

from pathlib import Path

import pytest

from crds.api_resources import PODS
from kube import client, errors
from kube.settings import ConnectionSettings, RetrySettings
from tests.doubles.recording_meter import RecordingMeter
from tests.support import ports
from tests.support.kube import scripted
from tests.support.kube.scripted import Answer, listing, pod, status

pytestmark = pytest.mark.servers

ONCE = RetrySettings(attempts=2, base_seconds=0.001, cap_seconds=0.001)


def test_each_attempt_counts_by_status_and_method(tmp_path: Path) -> None:
    meter = RecordingMeter()
    with scripted.running() as server:
        path = scripted.kubeconfig(tmp_path, server.url)
        cluster = client.connect(ConnectionSettings(kubeconfig=str(path), retries=ONCE), meter)
        server.play(Answer(body=pod("p")), status(404, "NotFound"), status(500), Answer(201, pod("p")), listing())
        cluster.get(PODS, "p", "a")
        with pytest.raises(errors.NotFound):
            cluster.get(PODS, "q", "a")
        cluster.create(PODS, pod("p"), "a")
        with cluster.watch(PODS, resource_version="1") as events:
            assert list(events) == []
        cluster.close()
    name = "rest_client_requests_total"
    assert meter.counts == {
        (name, "200", "GET"): 2,
        (name, "404", "GET"): 1,
        (name, "500", "POST"): 1,
        (name, "201", "POST"): 1,
    }
    seconds = "rest_client_request_duration_seconds"
    assert meter.observed == {(seconds, "GET"): 3, (seconds, "POST"): 2}


def test_a_request_without_an_answer_counts_as_an_error(tmp_path: Path) -> None:
    meter = RecordingMeter()
    with ports.reserve() as port:
        path = scripted.kubeconfig(tmp_path, f"http://127.0.0.1:{port}")
        cluster = client.connect(ConnectionSettings(kubeconfig=str(path), retries=ONCE), meter)
        with pytest.raises(errors.Unreachable):
            cluster.get(PODS, "p", "a")
        cluster.close()
    assert meter.counts == {("rest_client_requests_total", "<error>", "GET"): 2}
