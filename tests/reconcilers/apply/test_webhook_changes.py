"""Admission webhooks that change new pods so that torchq cannot work with them."""

from collections.abc import Callable
from typing import Any

import pytest

from crds.api_resources import EVENTS, PODS
from kube.api import Manifest
from tests.support.reconcilers.bench import Bench
from tests.support.reconcilers.builders import task


class Webhook:
    """A cluster that changes each new pod."""

    def __init__(self, cluster: Any, change: Callable[[Manifest], Manifest]) -> None:
        self._cluster, self._change = cluster, change

    def create(self, resource: Any, body: Manifest, *args: Any) -> Manifest:
        created: Manifest = self._cluster.create(resource, self._change(body) if resource == PODS else body, *args)
        return created

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._cluster, verb)


def relabelled(pod: Manifest) -> Manifest:
    return {**pod, "metadata": {**pod["metadata"], "labels": {"team": "a"}}}


def restarted(pod: Manifest) -> Manifest:
    return {**pod, "spec": {**pod["spec"], "restartPolicy": "Always"}}


def extended(pod: Manifest) -> Manifest:
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "labels": {**metadata["labels"], "team": "a"}}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            relabelled,
            ("pod digits-master-0: an admission webhook has replaced labels (", "train.distributed.io/job-uid"),
        ),
        (restarted, ("pod digits-master-0: an admission webhook has changed restartPolicy Never to Always",)),
        (extended, ()),
    ],
)
def test_a_pod_that_a_webhook_has_spoiled_is_named_by_one_event(
    bench: Bench, change: Callable[[Manifest], Manifest], words: tuple[str, ...]
) -> None:
    bench.counting._cluster = Webhook(bench.counting._cluster, change)
    bench.submit({"Master": task()})
    bench.pick()
    bench.reconcile(times=3)
    told = [each["message"] for each in bench.cluster.list(EVENTS, bench.namespace).items]
    told = [each for each in told if "webhook" in each]
    assert len(told) == bool(words)
    assert all(word in each for word in words for each in told)
