"""Node shutdowns: the ends of containers that a shutdown explains, as tables, and the time when containers get
SIGTERM.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from embedded import pod as pod_fields
from embedded.layout import Layout
from embedded.node.kubelet import Kubelet
from embedded.node.pods.config_reader import ConfigReader
from embedded.node.pods.kept_logs import KeptLogs
from embedded.node.pods.node_context import NodeContext
from embedded.node.pods.status_reporter import Report, Reporter
from embedded.node.resources.devices import Devices
from embedded.node.resources.memory_watch import MemoryWatch
from embedded.node.resources.port_watch import PortWatch
from embedded.node.runs.container_processes import Process
from embedded.node.runs.container_runs import ContainerRuns, Ending, Run
from embedded.node.shutdown import shutdown_record
from embedded.node.shutdown.shutdown import NEAR_SECONDS, NodeShutdown
from embedded.node.shutdown.shutdown_record import EndingPod, Mark
from embedded.node.status import pod_lifecycle
from embedded.node.status.pod_lifecycle import Containers
from embedded.pod import LocalPod
from kube.api import Cluster
from kube.object_errors import ObjectErrors
from tests.support.waiting import until

BEGAN, TOLD = 1_000.0, 2_000.0
"""The start time of the node, and the time at which its shutdown began."""


def ending(finished: float, signalled: float = 0.0, signal: int = 0) -> Ending:
    return Ending(128 + signal if signal else 0, finished, signal=signal, signalled_at=signalled)


@pytest.mark.parametrize(
    ("found", "running", "shutting_down"),
    [
        (ending(TOLD - 0.1), False, False),  # the container ended by itself shortly before the shutdown
        (ending(TOLD - 0.1, signal=9), False, False),
        (ending(TOLD - 0.1, signal=15), False, True),
        (ending(TOLD - 0.1, signal=1), False, True),
        (ending(TOLD + 5, signalled=TOLD - 0.1), False, True),
        (ending(TOLD + 5, signalled=TOLD + 0.1), False, True),
        (ending(TOLD - NEAR_SECONDS - 1, signal=15), False, False),  # too early for a shutdown, so a user ended it
        (ending(TOLD + 5, signalled=TOLD - NEAR_SECONDS - 1), False, False),
        (ending(BEGAN - 500, signalled=BEGAN - 510), True, True),  # the container ended while no node ran
        (ending(BEGAN - 500, signal=15), False, False),
        (ending(BEGAN - 500), False, False),
    ],
)
def test_a_shutdown_explains_only_signalled_ends_close_to_it(
    tmp_path: Path, found: Ending, running: bool, shutting_down: bool
) -> None:
    now = BEGAN
    node = NodeShutdown(Layout(tmp_path), lambda: now)
    assert node.explains(found) is running
    now = TOLD
    node.request()
    assert node.explains(found) is shutting_down


def test_the_next_node_reads_the_time_of_the_last_shutdown(tmp_path: Path) -> None:
    NodeShutdown(Layout(tmp_path), lambda: TOLD).request()
    following = NodeShutdown(Layout(tmp_path), lambda: TOLD + 100)
    assert following.explains(ending(TOLD + 1, signal=15))
    assert not following.explains(ending(TOLD + 101, signal=15))
    assert not following.explains(ending(TOLD - NEAR_SECONDS - 1, signal=15))


@pytest.mark.parametrize(("number", "explained"), [(15, True), (0, False)])
def test_an_end_that_began_before_this_node_is_explained_however_late_its_last_process_ended(
    tmp_path: Path, number: int, explained: bool
) -> None:
    node = NodeShutdown(Layout(tmp_path), lambda: TOLD)
    late = Ending(128 + number, TOLD + 100, number, signalled_at=TOLD - 5)
    assert node.explains(late) is explained


def run(restart: int, finished: float | None, code: int = 0) -> Run:
    return Run(restart, 1.0, Process(1, 1), None if finished is None else Ending(code, finished))


@pytest.mark.parametrize(
    ("policy", "histories", "before"),
    [
        ("Never", {"a": (run(0, 9.0),), "b": (run(0, 9.9),)}, True),
        ("Never", {"a": (run(0, 9.0, 1),), "b": (run(0, 9.9),)}, True),
        ("Never", {"a": (run(0, 9.0),), "b": (run(0, 10.0),)}, False),
        ("Never", {"a": (run(0, 9.0),), "b": (run(0, None),)}, False),
        ("Never", {"a": (run(0, 9.0),), "b": ()}, False),
        ("OnFailure", {"a": (run(0, 9.0, 1),), "b": (run(0, 9.0),)}, False),  # the policy restarts container a
        ("OnFailure", {"a": (run(0, 8.0, 1), run(1, 9.0)), "b": (run(0, 9.0),)}, True),
        ("Always", {"a": (run(0, 9.0),), "b": (run(0, 9.0),)}, False),
    ],
)
def test_has_ended_before_is_true_if_all_containers_had_finished(
    policy: pod_lifecycle.RestartPolicy, histories: dict[str, tuple[Run, ...]], before: bool
) -> None:
    assert pod_lifecycle.has_ended_before(Containers(("a", "b"), (), policy), histories, 10.0) is before


def test_shutdown_records_read_back_as_written(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert (shutdown_record.read(layout, "u"), shutdown_record.ending_pods(layout)) == (None, None)
    for mark in (Mark(1.5), Mark(1.5, 2.5, (("a", 0), ("b", 3)))):
        shutdown_record.write(layout, "u", mark)
        assert shutdown_record.read(layout, "u") == mark
    pods = (EndingPod("team", "a", "digits", None), EndingPod("team", "b", "", 3.5))
    shutdown_record.write_ending_pods(layout, pods)
    assert shutdown_record.ending_pods(layout) == pods
    shutdown_record.clear_ending_pods(layout)
    assert shutdown_record.ending_pods(layout) is None


class Recorder:
    """A reporter that records the reports of a node and sends nothing to an API server."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.marked: set[str] = set()
        self.asked_too_early: set[str] = set()

    def report(self, report: Report) -> None:
        conditions = (report.status or {}).get("conditions", ())
        if any(each["type"] == "DisruptionTarget" for each in conditions):
            self.marked.add(report.pod.name)
            mark = shutdown_record.read(self._layout, report.pod.uid)
            if mark is None or mark.asked_at is not None:
                self.asked_too_early.add(report.pod.name)


BOUND = {"type": "PodScheduled", "status": "True"}


def made(name: str, folder: Path) -> LocalPod:
    """Return a pod of this node that records in files that it runs and that it got SIGTERM."""
    script = (
        f"trap 'touch {folder}/asked-{name}; exit 0' TERM; touch {folder}/ready-{name}; while :; do sleep 0.02; done"
    )
    container = {"name": "c", "image": "any", "command": ["sh", "-c", script]}
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "creationTimestamp": "2026-01-02T03:04:05Z"}
    spec = {"nodeName": "local", "restartPolicy": "Never", "containers": [container]}
    return pod_fields.read({"metadata": metadata, "spec": spec, "status": {"phase": "Pending", "conditions": [BOUND]}})


@pytest.mark.servers
def test_no_container_gets_sigterm_before_all_marks_are_on_the_api_server(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "data")
    recorder = Recorder(layout)
    runs, errors = ContainerRuns(layout), ObjectErrors()
    ground = NodeContext(
        layout=layout,
        runs=runs,
        devices=Devices(layout, ()),
        reporter=cast(Reporter, recorder),
        config_reader=ConfigReader(cast(Cluster, None)),
        kept_logs=KeptLogs(layout),
        base={"PATH": os.environ["PATH"]},
        allocatable={"pods": 10, "cpu": 1000},
        memory=MemoryWatch(runs.record_oom, errors),
        ports=PortWatch(cast(Cluster, None)),
        shutdown=NodeShutdown(layout),
    )
    pods = [made(name, tmp_path) for name in ("one", "two")]
    kubelet = Kubelet("local", ground, errors=errors)
    kubelet.start(pods)
    try:
        for pod in pods:
            kubelet.on_change(None, pod)
        until(lambda: len(list(tmp_path.glob("ready-*"))) == 2)
        kubelet.shut_down()
        until(lambda: recorder.marked == {"one", "two"})
        assert not recorder.asked_too_early
        target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
        for pod in pods:
            kubelet.on_change(pod, replace(pod, manifest={**pod.manifest, "status": {"conditions": [target]}}))
        until(lambda: kubelet.ending_pods == ())
        assert sorted(path.name for path in tmp_path.glob("asked-*")) == ["asked-one", "asked-two"]
    finally:
        kubelet.hurry()
        kubelet.shut_down()
        until(lambda: kubelet.ending_pods == ())
        kubelet.stop()
