"""Every command against a cluster in which all texts that others may write have all characters that a terminal obeys.

One rule: a command that is added is run here too, or is named with the reason why it prints no text of others.
"""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Group
from click.testing import CliRunner

from coordinator.cli import api_client, main
from coordinator.cli.history import sources
from coordinator.cli.jobs import followed_output
from coordinator.errors import CoordinatorError
from coordinator.follow.log_lines import LogLine
from coordinator.query.history_answers import GROUPINGS
from crds import labels
from crds.api_resources import EVENTS, PODS, TENANT_QUEUES, TORCHJOBS
from history.rows import PoolRow
from kube.client import KubernetesCluster
from tests.coordinator.test_terminal import COLOR, EVERY_CONTROL, controls
from tests.doubles.memory_history import MemoryHistory
from tests.support import history_rows as rows
from tests.support.coordinator.command import Torchq
from tests.support.coordinator.desk import manifest, task
from tests.support.kube.servers import Server
from tests.test_structure import commands

pytestmark = pytest.mark.servers

EVIL = f"begin \x1b]0;title\x07 \x1b]52;c;bHM=\x07 \x9b31m {EVERY_CONTROL[1:]} end"
"""A text with every control character but zero, which no server takes."""
SHORT = "\x1b]0;title\x07\x9b31m"
NOW = "2026-01-01T00:00:00Z"
START, AT = 31_536_000, ("--since", "1971-01-01", "--until", "1972-01-01")
"""When the history begins, and the options of a span that has all of it."""
RUN: dict[str, list[tuple[str, ...]]] = {
    "config": [(), ("-o", "json")],
    "doctor": [(), ("-o", "json")],
    "history": [
        *(("-A", "-o", form) for form in ("wide", "csv", "json", "yaml")),
        *(("--queue", EVIL), ("--user", EVIL), ("-A", "--sort-by", EVIL), ("--since", EVIL), ("-A",)),
        *((f"red/{EVIL}",), (f"red/{EVIL}", "-o", "yaml"), (f"gone/{EVIL}",)),
    ],
    "history migrate": [()],
    "job bump": [("train",)],
    "job cancel": [("other", "--reason", EVIL)],
    "job delete": [("gone",)],
    "job hold": [("waits",)],
    "job list": [(), ("-A", "-o", "wide"), ("-o", "json"), ("-o", "yaml"), ("--queue", EVIL), ("--sort-by", EVIL)],
    "job logs": [("train",), ("train", "--all"), ("train", "waits"), (EVIL,)],
    "job move": [("train", EVIL)],
    "job position": [("train",), ("train", "-o", "json")],
    "job reports": [("train",)],
    "job restart": [("train", "--reason", EVIL)],
    "job resume": [("waits",)],
    "job scale": [("train", "3")],
    "job show": [("train",), ("train", "-o", "wide"), ("train", "-o", "json"), ("train", "-o", "yaml"), ("waits",)],
    "job suspend": [("other",)],
    "job wait": [("failed", "--timeout", "1"), ("train", "failed", "--timeout", "1")],
    "job why": [("train",), ("train", "-o", "json"), ("waits",), ("failed",), (EVIL,)],
    "local status": [("--data", "{folder}")],
    "model delete": [(EVIL, "--yes")],
    "model list": [(), (EVIL,), ("-o", "json")],
    "model path": [(EVIL,)],
    "model show": [(EVIL,)],
    "next": [(), ("-o", "json")],
    "pool": [(), ("-o", "json")],
    "queue create": [(EVIL,), ("b", "--cohort", EVIL), ("b", "--quota", EVIL)],
    "queue delete": [(EVIL,)],
    "queue list": [(), ("-o", "wide"), ("-o", "json")],
    "queue pause": [(EVIL,)],
    "queue resume": [("a", "--reason", EVIL)],
    "queue set-cohort": [("a", EVIL)],
    "queue set-gang-queues": [("a", EVIL)],
    "queue set-quota": [("a", EVIL)],
    "queue set-weight": [("a", EVIL)],
    "queue show": [("a",), ("a", "-o", "json"), ("a", "-o", "yaml"), (EVIL,)],
    "rbac": [(EVIL,)],
    "redis adopt": [("--redis", f"redis://{EVIL}")],
    "restore": [("{folder}/evil.yaml",)],
    "run": [("--dry-run", "--", "python", "no\x1b]0;x\x07.py"), ("--dry-run", "-o", "yaml", "--", "echo", EVIL)],
    "scale plan": [(), ("-o", "json")],
    "status": [(), ("-o", "json")],
    "submit": [("{folder}/evil.yaml",), ("{folder}/evil.yaml", "--dry-run"), (EVIL,)],
    "top": [("--count", "1")],
    "usage": [
        *((*AT, "--by", each, "-o", form) for each in GROUPINGS for form in ("wide", "csv", "yaml")),
        *((*AT,), ("--tz", EVIL), ("--month", EVIL)),
    ],
}
"""The arguments with which each command is run; most of the runs end with an error, which has the text in it."""
NOT_RUN = {
    "coordinator": "writes a log, which passes the same door",
    "worker": "writes a log, which passes the same door",
    "recorder": "writes a log, which passes the same door",
    "dashboard": "shows its texts in a browser, escaped (coordinator.dashboard.drawing)",
    "dashboard token": "prints a token and the name of an account that the user gave",
    "rpc": "its output is a protocol; tests/coordinator/cli/rpc has its texts",
    "crds": "prints what is installed with it",
    "redis acl": "prints what is installed with it",
    "local up": "prints the names of this machine",
    "local down": "prints the names of this machine",
    "local kubeconfig": "prints the names of this machine",
    "local prune": "prints the names of this machine",
}


def evil_pod(name: str, owner: str) -> dict[str, Any]:
    state = {"waiting": {"reason": EVIL, "message": EVIL}}
    marks = {labels.TASK_TYPE: "worker", labels.TASK_INDEX: "0", labels.JOB_NAME: owner}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": marks, "annotations": {labels.RANK: EVIL, labels.TOPOLOGY: EVIL}},
        "spec": {"containers": [{"name": "torch", "image": EVIL}]},
        "status": {
            "phase": "Failed",
            "reason": EVIL,
            "message": EVIL,
            "containerStatuses": [{"name": "torch", "state": state, "restartCount": 1}],
            "conditions": [{"type": labels.PORT_SHARED, "status": "True", "reason": EVIL, "message": EVIL}],
        },
    }


def evil_event(name: str, item: dict[str, Any]) -> dict[str, Any]:
    metadata = item["metadata"]
    reference = {name: metadata[name] for name in ("name", "namespace", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": {"apiVersion": item["apiVersion"], "kind": item["kind"], **reference},
        "type": EVIL,
        "reason": EVIL,
        "message": EVIL,
        "source": {"component": EVIL},
        "reportingComponent": EVIL,
        "lastTimestamp": NOW,
    }


def evil_status(phase: str, kind: str) -> dict[str, Any]:
    condition = {"type": kind, "status": "True", "reason": EVIL, "message": EVIL, "lastTransitionTime": NOW}
    admission = {"queue": "a", "attempt": 1, "epoch": 1, "charge": {"jobs": 1}, "admittedAt": NOW}
    return {
        "phase": phase,
        "conditions": [condition],
        "queue": {"reason": SHORT, "message": EVIL, "since": NOW},
        "excludedNodes": [EVIL],
        **({"admission": admission} if phase == "Running" else {}),
    }


@pytest.fixture
def evil(embedded_cluster: KubernetesCluster, namespace: str, tmp_path: Path) -> Path:
    """Make the objects, and return a folder with files of hostile names and contents."""
    cluster = embedded_cluster
    queue = {"apiVersion": TENANT_QUEUES.api_version, "kind": TENANT_QUEUES.kind, "metadata": {"name": "a"}, "spec": {}}
    cluster.create(TENANT_QUEUES, queue)
    states = {"train": "Running", "other": "Running", "failed": "Failed", "waits": "Queued", "gone": "Queued"}
    for name, phase in states.items():
        body = manifest(name, "a", {"Master": task(), "Worker": task(2)})
        container = body["spec"]["torchTaskSpecs"]["Worker"]["template"]["spec"]["containers"][0]
        container |= {"image": EVIL, "command": ["python", EVIL], "workingDir": EVIL}
        item = cluster.create(TORCHJOBS, body, namespace)
        cluster.patch(TORCHJOBS, name, {"status": evil_status(phase, phase)}, namespace, subresource="status")
        cluster.create(EVENTS, evil_event(f"{name}.1", item), namespace)
        pod = evil_pod(f"{name}-worker-0", name)
        cluster.create(PODS, pod, namespace)
        cluster.patch(PODS, f"{name}-worker-0", {"status": pod["status"]}, namespace, subresource="status")
    whole = manifest("m", "a")
    whole["metadata"] |= {"name": EVIL, "annotations": {EVIL: EVIL}}
    (tmp_path / "evil.yaml").write_text(yaml.safe_dump(whole))
    return tmp_path


def answer(path: str, *_: object) -> Any:
    """Answer as a coordinator whose texts are hostile."""
    status = {"pending": 1, "admitted": 1, "share": EVIL, "target": EVIL, "usage": {"cpu": "1"}}
    queue = {"metadata": {"name": EVIL, "creationTimestamp": NOW}, "spec": {"cohort": EVIL}, "status": status}
    where = {"pick": 1, "job": EVIL, "queue": EVIL, "uid": EVIL, "priority": EVIL}
    pick = {**where, "cost": EVIL, "waitSeconds": 1, "when": EVIL, "demand": {"cpu": EVIL}}
    if path.startswith("/v1/queues/"):
        return queue
    if path.startswith("/v1/queues"):
        return {"items": [queue]}
    if path.startswith("/v1/next"):
        return {"items": [pick], "waiting": 1, "pool": None}
    if path.startswith("/v1/places"):
        return {"items": []}
    if "/why?" in path:
        return {"state": "absent", "code": EVIL, "message": EVIL, "numbers": EVIL}
    raise CoordinatorError(f"the coordinator: {EVIL}")


def history() -> MemoryHistory:
    """Return a history all of whose texts are hostile."""
    store, texts = MemoryHistory(), dict.fromkeys(("name", "queue", "user", "reason", "message", "result"), EVIL)
    for uid, ended in ((EVIL, START + 90), ("open", None)):
        charge = {"nvidia.com/gpu": 2, EVIL: 1}
        store.write(
            [
                rows.job(uid, created=START, ended=ended, outcome="Deleted" if ended else "", **texts),
                rows.wait(uid, START, START + 10, queue=EVIL),
                rows.hold(uid, START + 10, START + 60, charge=charge, unpaid={EVIL: 1}, queue=EVIL, ended=EVIL),
                rows.pod(f"pod of {uid}", uid, START + 60, START + 80, queue=EVIL, charge=charge),
            ]
        )
    store.write([PoolRow(start=START, amounts={"nvidia.com/gpu": 8})])
    store.record_until(START + 100)
    return store


def lines(*_: Any, **__: Any) -> Iterator[LogLine]:
    yield LogLine("", EVIL)
    yield LogLine("worker-0", EVIL)
    yield LogLine("worker-0", f"torchq-report: {json.dumps({'loss': EVIL})}")


@pytest.fixture(autouse=True)
def _evil_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_client, "coordinator", lambda _: answer)
    own = sources.own_history
    monkeypatch.setattr(
        sources,
        "find",
        lambda _: own(lambda: nullcontext(history()), {"nvidia.com/gpu": Decimal(1)}, "dominant"),
    )
    monkeypatch.setattr(followed_output, "follow", lines)


@pytest.mark.parametrize("name", RUN)
@pytest.mark.usefixtures("torchq")
def test_no_command_prints_a_character_that_a_terminal_obeys(
    name: str, evil: Path, embedded_server: Server, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(evil)
    environment = {"TORCHQ_KUBECONFIG": str(embedded_server.kubeconfig), "TORCHQ_NAMESPACE": namespace}
    for arguments in RUN[name]:
        given = [each.replace("{folder}", str(evil)) for each in arguments]
        found = CliRunner().invoke(main.main, [*name.split(), *given], env=environment, prog_name="torchq")
        assert found.exception is None or isinstance(found.exception, SystemExit), (arguments, found.exception)
        printed = COLOR.sub("", found.output) if name == "job logs" else found.output
        assert controls(printed) == set(), (arguments, printed)


def test_every_command_is_run_or_named() -> None:
    found = {name.removeprefix("torchq "): command for name, command in commands(main.main)}
    names = {name for name, each in found.items() if not isinstance(each, Group) or each.invoke_without_command}
    assert names == {*RUN, *NOT_RUN}


@pytest.mark.usefixtures("evil")
def test_texts_of_others_stand_in_the_output_as_escapes(torchq: Torchq) -> None:
    shown = torchq("job", "show", "train").output
    assert shown.count(r"\x1b]52;c;bHM=\x07") >= 4  # the condition, the event, the pod and its image
    item = json.loads(torchq("job", "show", "train", "-o", "json").stdout)
    assert EVIL in json.dumps(item, ensure_ascii=False).replace(json.dumps(EVIL, ensure_ascii=False)[1:-1], EVIL)
    assert "begin   " in torchq("job", "logs", "train").stdout  # a log is shown without the sequences
