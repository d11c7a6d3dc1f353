"""The benchmarks of restarts: their objects and words, and short runs from end to end."""

from typing import Any

import pytest
from click.testing import CliRunner

from bench.benchmarks.restarts import asks, table
from bench.cli import main
from bench.support.restarts import kubelet_player, ranked_job
from bench.support.restarts.kubelet_player import Pod
from bench.support.restarts.ranked_job import RankedJob, Said
from crds import labels
from crds.torchjob import torchjob
from kube.api import Manifest
from reconcilers.views import pod_view

POD = Pod("team", "large-worker-0", "Running", ("torch",), "", "", 0)


def pod(status: dict[str, Any]) -> Manifest:
    """Return the pod of the played kubelet, with the status that it wrote."""
    notes = {labels.RESTART_CONTAINERS: "3"}
    metadata = {"name": POD.name, "namespace": "team", "uid": "u", "resourceVersion": "1", "annotations": notes}
    owner = {"apiVersion": "train.distributed.io/v1alpha1", "kind": "TorchJob", "name": "large", "uid": "j"}
    metadata |= {"labels": {labels.JOB_UID: "j"}, "ownerReferences": [{**owner, "controller": True}]}
    return {"metadata": metadata, "spec": {"containers": [{"name": "torch"}]}, "status": status}


def test_played_kubelet_reports_a_start_and_a_restart_as_the_worker_reads_it() -> None:
    started = pod_view.trim(pod(kubelet_player.running(POD)))
    assert (started.running, started.restarts, started.completed_restart) == (True, 0, "")
    again = pod_view.trim(pod(kubelet_player.running(POD._replace(asked="3"))))
    assert (again.running, again.restarts, again.completed_restart) == (True, 1, "3")


@pytest.mark.parametrize(
    ("state", "due"),
    [
        (POD, None),
        (POD._replace(phase="Pending"), ""),
        (POD._replace(asked="3"), "3"),
        (POD._replace(asked="3", done="3"), None),
        (POD._replace(asked="3", phase="Failed"), None),
    ],
)
def test_played_kubelet_does_what_a_pod_asks_for_once(state: Pod, due: str | None) -> None:
    assert kubelet_player._due(state) == due


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("boot 12.500 3", Said("boot", 12.5, 3)),
        ("exit 13.000 2", Said("exit", 13.0, 2)),
        ("a warning of the image", None),
        ("", None),
    ],
)
def test_only_the_words_of_a_rank_are_read(line: str, said: Said | None) -> None:
    assert ranked_job.parse(line) == said


@pytest.mark.parametrize(("elastic", "ranks"), [(False, 3), (True, 2)])
def test_jobs_of_the_table_are_valid(elastic: bool, ranks: int) -> None:
    cluster: Any = None
    job = RankedJob(cluster=cluster, name="b", namespace="n", image="i", python="python3", elastic=elastic)
    body = job.manifest()
    body["metadata"] |= {"namespace": "n", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z"}
    body["metadata"]["resourceVersion"] = "1"
    spec = torchjob.parse(body).spec
    assert (sum(task.num_tasks for task in spec.tasks.values()), spec.is_elastic) == (ranks, elastic)


def test_the_command_takes_a_kubeconfig_only_with_real(tmp_path: Any) -> None:
    file = tmp_path / "config"
    file.touch()
    done = CliRunner().invoke(main, ["restarts", "--kubeconfig", str(file)])
    assert (done.exit_code, "--kubeconfig is for --real" in done.stderr) == (2, True)


@pytest.mark.redis_server
def test_a_short_run_asks_every_pod_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(asks.ASSETS, raising=False)
    found = asks.run(asks.Options(pods=6, restart_seconds=0.1, seconds=60.0))
    assert (found["server"], found["most_writes_per_pod"]) == ("embedded", 1)
    assert 0 < found["first_ask_s"] <= found["last_ask_s"] <= found["all_run_again_s"]


@pytest.mark.redis_server
def test_a_short_table_measures_a_failure_of_each_trainer_and_every_resize(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_SETTLE_SECONDS", 0.1)
    found = table.run(table.Options(failures=1, seconds=60.0))
    assert [len(found[f"{trainer}_failures"]) for trainer in table.TRAINERS] == [1, 1]
    assert [row["workers"] for row in found["resizes"]] == ["2-3", "3-2", "2-4", "4-3"]
    assert all(row["seconds"] > 0 for name in ("ends_failures", "resizes") for row in found[name])
