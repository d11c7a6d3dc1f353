"""Pods whose labels were changed: such pods are made again."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.reconcilers.resizing import ELASTIC, fail, resizing, scaling


class TestChangedLabels:
    @pytest.mark.parametrize("changed", [{"task": "other"}, {"index": 7}])
    def test_pod_whose_labels_were_changed_is_made_again_and_the_others_stay(self, changed: dict[str, Any]) -> None:
        job = resizing(3, restartScope="Task", **ELASTIC)
        uids = {name: pod.uid for name, pod in job.pods.items()}
        name = "digits-worker-1"
        job.pods[name] = replace(job.pods[name], **changed)
        job.work()
        assert [pod.name for pod in job.pods.values() if pod.deleting] == [name]
        assert (job.known.status.restart_count, job.known.status.disruptions, scaling(job)) == (0, 1, None)
        assert "pod digits-worker-1 was deleted (LabelsChanged): its labels were changed" in job.events[0]
        job.end()
        job.work()
        made = job.pods[name]
        assert (made.task, made.index) == ("worker", 1)
        assert made.uid != uids.pop(name)
        assert {name: job.pods[name].uid for name in uids} == uids
        assert job.known.status.disruptions == 1

    def test_pod_that_has_ended_keeps_its_end_whatever_its_labels_are(self) -> None:
        job = resizing(2, restartScope="Task", **ELASTIC)
        fail(job, 1, phase="Succeeded", exit_code=0)
        job.work()
        name = "digits-worker-1"
        job.pods[name] = replace(job.pods[name], index=7)
        job.work()
        assert not job.pods[name].deleting
        fail(job, 0, phase="Succeeded", exit_code=0)
        job.work()
        assert job.known.status.phase == "Succeeded"
