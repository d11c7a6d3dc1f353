"""Pods on the embedded server: creation, binding, graceful deletion, logs."""

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crds.api_resources import PODS, Resource
from embedded import log_times
from embedded.layout import Layout
from kube import errors
from kube.client import KubernetesCluster
from tests.support.kube.servers import Server
from tests.support.kube.widgets import pod

BINDINGS = Resource("", "v1", "bindings", "Binding")


def _binding(name: str, node: str = "local") -> dict[str, object]:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}


@pytest.fixture
def bound(embedded_cluster: KubernetesCluster, namespace: str) -> dict[str, object]:
    embedded_cluster.create(PODS, pod(), namespace)
    embedded_cluster.create(BINDINGS, _binding("p"), namespace)
    return embedded_cluster.get(PODS, "p", namespace)


def test_new_pod_is_pending_and_has_defaults(
    embedded_cluster: KubernetesCluster, embedded_server: Server, namespace: str
) -> None:
    limits = {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}}
    made = embedded_cluster.create(PODS, pod(containers=[{"name": "a", "image": "i", **limits}]), namespace)
    assert made["status"]["phase"] == "Pending"
    spec = made["spec"]
    assert (spec["restartPolicy"], spec["schedulerName"]) == ("Always", "default-scheduler")
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}


def test_pod_can_be_bound_only_once(
    embedded_cluster: KubernetesCluster, embedded_server: Server, namespace: str, bound: dict[str, dict[str, str]]
) -> None:
    assert bound["spec"]["nodeName"] == "local"
    with pytest.raises(errors.Conflict, match="already assigned"):
        embedded_cluster.create(BINDINGS, _binding("p", "elsewhere"), namespace)
    code, _ = embedded_server.send("POST", PODS.path(namespace, "p", "binding"), _binding("p"))
    assert code == 409
    with pytest.raises(errors.Invalid, match="pod updates may not change"):
        embedded_cluster.patch(PODS, "p", {"spec": {"nodeName": "elsewhere"}}, namespace)
    assert len(embedded_cluster.list(PODS, namespace, field_selector="spec.nodeName=local").items) == 1


def test_unbound_pod_is_deleted_immediately(
    embedded_cluster: KubernetesCluster, embedded_server: Server, namespace: str
) -> None:
    embedded_cluster.create(PODS, pod(), namespace)
    embedded_cluster.delete(PODS, "p", namespace)
    with pytest.raises(errors.NotFound):
        embedded_cluster.get(PODS, "p", namespace)


def test_deleted_bound_pod_stays_until_its_node_removes_it(
    embedded_cluster: KubernetesCluster, embedded_server: Server, namespace: str, bound: dict[str, dict[str, str]]
) -> None:
    uid = bound["metadata"]["uid"]
    embedded_cluster.delete(PODS, "p", namespace)
    first = embedded_cluster.get(PODS, "p", namespace)["metadata"]
    assert first["deletionGracePeriodSeconds"] == 30
    embedded_cluster.delete(PODS, "p", namespace, grace_period_seconds=60)
    assert embedded_cluster.get(PODS, "p", namespace)["metadata"] == first
    embedded_cluster.delete(PODS, "p", namespace, grace_period_seconds=5)
    assert embedded_cluster.get(PODS, "p", namespace)["metadata"]["deletionGracePeriodSeconds"] == 5
    with pytest.raises(errors.Conflict):
        embedded_cluster.create(BINDINGS, _binding("p"), namespace)
    with pytest.raises(errors.Conflict):
        embedded_cluster.delete(PODS, "p", namespace, uid="another", grace_period_seconds=0)
    embedded_cluster.patch(PODS, "p", {"status": {"phase": "Running"}}, namespace, subresource="status")
    embedded_cluster.delete(PODS, "p", namespace, uid=uid, grace_period_seconds=0)
    with pytest.raises(errors.NotFound):
        embedded_cluster.get(PODS, "p", namespace)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pod_is_deleted_immediately(
    embedded_cluster: KubernetesCluster, embedded_server: Server, namespace: str, bound: object, phase: str
) -> None:
    embedded_cluster.patch(PODS, "p", {"status": {"phase": phase}}, namespace, subresource="status")
    embedded_cluster.delete(PODS, "p", namespace)
    with pytest.raises(errors.NotFound):
        embedded_cluster.get(PODS, "p", namespace)


@pytest.fixture
def run(embedded_server: Server, bound: dict[str, dict[str, str]]) -> Path:
    folder = Layout(embedded_server.kubeconfig.parent).container(bound["metadata"]["uid"], "main", 0)
    folder.mkdir(parents=True)
    return folder


def _text(pieces: Iterator[bytes]) -> bytes:
    return b"".join(pieces)


def test_logs_of_a_waiting_or_unknown_container_are_refused(
    embedded_cluster: KubernetesCluster, embedded_server: Server, namespace: str, bound: object
) -> None:
    with pytest.raises(errors.Invalid, match="waiting to start"):
        _text(embedded_cluster.logs("p", namespace))
    with pytest.raises(errors.Invalid, match="choose one of"):
        _text(embedded_cluster.logs("p", namespace, "other"))


def test_logs_return_all_or_the_last_lines(
    embedded_cluster: KubernetesCluster, embedded_server: Server, namespace: str, run: Path
) -> None:
    (run / "output").write_bytes(b"one\ntwo\nthree\n")
    assert _text(embedded_cluster.logs("p", namespace)) == b"one\ntwo\nthree\n"
    path = PODS.path(namespace, "p", "log")
    for lines, expected in ((0, ""), (1, "three\n"), (2, "two\nthree\n"), (9, "one\ntwo\nthree\n")):
        assert embedded_server.send("GET", f"{path}?tailLines={lines}") == (200, expected)
    assert embedded_server.send("GET", f"{path}?limitBytes=5") == (200, "one\nt")
    for count, most, end in ((2, 100, "two\nthree\n"), (9, 8, "o\nthree\n"), (1, 100, "three\n")):
        assert embedded_cluster.log_end("p", namespace, "main", lines=count, most=most) == end


def test_logs_are_selected_and_stamped_by_time(embedded_server: Server, namespace: str, run: Path) -> None:
    path = PODS.path(namespace, "p", "log")
    now = time.time()
    (run / "output").write_bytes(b"one\ntwo\n")
    assert log_times.note(str(run), now - 100, 0) == 8
    with (run / "output").open("ab") as file:
        file.write(b"three\nfour")
    assert log_times.note(str(run), now - 50, 8) == 18
    assert log_times.note(str(run), now - 40, 18) == 18
    for seconds, expected in ((200, "one\ntwo\nthree\nfour"), (70, "three\nfour"), (10, "")):
        os.utime(run / "output", (now - 45, now - 45))
        assert embedded_server.send("GET", f"{path}?sinceSeconds={seconds}") == (200, expected)
    moment = log_times.stamp(now - 70).replace("000Z", "Z")
    assert embedded_server.send("GET", f"{path}?sinceTime={moment}&tailLines=1") == (200, "four")
    early, late = log_times.stamp(now - 100), log_times.stamp(now - 50)
    stamped = f"{early} one\n{early} two\n{late} three\n{late} four"
    assert embedded_server.send("GET", f"{path}?timestamps=true") == (200, stamped)
    for query in ("sinceSeconds=0", "sinceSeconds=x", "sinceTime=yesterday", f"sinceTime={moment}&sinceSeconds=1"):
        assert embedded_server.send("GET", f"{path}?{query}")[0] == 400


def test_lines_begin_with_their_positions_and_no_line_marks_what_was_removed(
    embedded_server: Server, namespace: str, run: Path
) -> None:
    path = PODS.path(namespace, "p", "log")
    (run / "output.100").write_bytes(b"a\nbb\nc")
    assert embedded_server.send("GET", f"{path}?positions=true") == (200, "@100 a\n@102 bb\n@105 c")
    (run / "output.120").write_bytes(b"d\n")
    late = log_times.stamp(os.stat(run / "output.120").st_mtime)
    answer = f"@100 {late} a\n@102 {late} bb\n@105 {late} c\n@120 {late} d\n"
    assert embedded_server.send("GET", f"{path}?positions=true&timestamps=true") == (200, answer)
    assert "[torchq: 100 bytes" in embedded_server.send("GET", path)[1]


def test_followed_log_ends_with_the_container(
    embedded_cluster: KubernetesCluster, embedded_server: Server, namespace: str, run: Path
) -> None:
    output = run / "output"
    output.write_bytes(b"begin\n")
    pieces = embedded_cluster.logs("p", namespace, follow=True)
    assert next(pieces) == b"begin\n"
    with output.open("ab") as file:
        file.write(b"end\n")
    (run / "exited").write_text("{}")
    assert _text(pieces) == b"end\n"


def test_previous_logs_are_those_of_the_run_before(
    embedded_cluster: KubernetesCluster, embedded_server: Server, namespace: str, run: Path
) -> None:
    (run / "output").write_bytes(b"first\n")
    status = {"containerStatuses": [{"name": "main", "restartCount": 1}]}
    embedded_cluster.patch(PODS, "p", {"status": status}, namespace, subresource="status")
    # The second run is announced but has not started, so the log is still the log of the first run.
    assert _text(embedded_cluster.logs("p", namespace)) == b"first\n"
    (run.parent / "1").mkdir()
    (run.parent / "1" / "output").write_bytes(b"second\n")
    assert _text(embedded_cluster.logs("p", namespace)) == b"second\n"
    path = PODS.path(namespace, "p", "log")
    assert embedded_server.send("GET", f"{path}?previous=true") == (200, "first\n")
    assert embedded_cluster.log_end("p", namespace, "main", lines=9, most=100, previous=True) == "first\n"


def test_watch_sends_each_step_of_a_pod_deletion(
    embedded_cluster: KubernetesCluster, embedded_server: Server, namespace: str, bound: object
) -> None:
    start = embedded_cluster.list(PODS, namespace).resource_version
    watch = embedded_cluster.watch(PODS, namespace, resource_version=start, timeout_seconds=20)
    embedded_cluster.delete(PODS, "p", namespace)
    embedded_cluster.delete(PODS, "p", namespace, grace_period_seconds=0)
    assert [event.kind for event in itertools.islice(watch, 3)] == ["MODIFIED", "MODIFIED", "DELETED"]
    watch.close()
