"""Coordinators and workers are rolled under load to a version with another layout of keys, and back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from crds.api_resources import TENANT_QUEUES, TORCHJOBS
from queues import redis_keys
from tests.support.acceptance.jobs import job
from tests.support.acceptance.rolling import Site, copy_with_layout
from tests.support.acceptance.stack import until
from tests.support.acceptance.warm import ROOT

ROOM = 3
BATCH = 6
SETTINGS = {
    "TORCHQ_LEASE_SECONDS": "2",
    "TORCHQ_RENEW_DEADLINE": "1.5",
    "TORCHQ_RENEW_SECONDS": "0.5",
    "TORCHQ_RUNNING_LEASE_SECONDS": "3",
    "TORCHQ_LOG_LEVEL": "info",
}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path, SETTINGS)
    try:
        site.start()
        yield site
    finally:
        site.close()


def submit(site: Site, batch: int) -> None:
    for number in range(BATCH):
        site.api().create(TORCHJOBS, job(f"job-{batch}-{number}", ["sleep", "0.5"]), "default")


def test_jobs_do_not_notice_a_roll_to_another_layout_and_back(site: Site, tmp_path: Path) -> None:
    trees = {"a": ROOT, "b": copy_with_layout(tmp_path / "other", redis_keys.OWN_LAYOUT + 1)}
    body = {"metadata": {"name": "default"}, "spec": {"weight": 1, "quota": {"jobs": ROOM}}}
    site.api().create(TENANT_QUEUES, {"apiVersion": TENANT_QUEUES.api_version, "kind": TENANT_QUEUES.kind, **body})
    for name, tree in trees.items():
        site.run(f"coordinator-{name}", tree, "coordinator")
        site.run(f"worker-{name}", tree, "worker", "--single")
    [first] = until(lambda: [name for name in trees if "leading as" in site.log(f"coordinator-{name}")])
    [second] = trees.keys() - {first}
    submit(site, 0)
    until(lambda: "takes no work" in site.log(f"worker-{second}"))
    until(site.has_ended(2))
    submit(site, 1)
    site.stop(f"coordinator-{first}")
    until(site.has_ended(BATCH + 2))
    assert "takes work again" in site.log(f"worker-{second}")
    site.run(f"coordinator-{first}", trees[first], "coordinator")
    until(lambda: "takes no work" in site.log(f"worker-{first}"))
    until(lambda: "takes no work" in site.log(f"coordinator-{second}"))
    submit(site, 2)
    site.stop(f"coordinator-{second}")
    until(site.has_ended(3 * BATCH))
    assert site.observer is not None
    assert site.observer.most <= ROOM
    assert {len(pods) for pods in site.observer.pods.values()} == {1}, "no pod was made twice"
    assert {item["status"]["phase"] for item in site.api().list(TORCHJOBS).items} == {"Succeeded"}
    assert not any("Traceback" in site.log(name) for name in site.parts.all)
