"""The classification of failed pods, as a table."""

from dataclasses import replace
from typing import Any

import pytest

from reconcilers.plan import failures
from reconcilers.plan.failures import JobVerdict
from reconcilers.views import pod_view
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import NOW, job, pod, status, task, template

RETRIED = {129, 130, 131, 134, 135, 137, 138, *range(140, 152), *range(154, 159), *range(160, 193), 241, 247, 250}


def failed(code: int | None, reason: str = "Error", **fields: Any) -> PodView:
    return pod(phase="Failed", exit_code=code, reason=reason, **fields)


@pytest.mark.parametrize("code", range(256))
def test_classify_every_exit_code_by_restart_policy(code: int) -> None:
    found = {policy: failures.classify(policy, failed(code)) for policy in ("Never", "ExitCode", "OnFailure", "Always")}
    assert found == {
        "Never": "Permanent",
        "ExitCode": "Retryable" if code in RETRIED else "Permanent",
        "OnFailure": "Retryable",
        "Always": "Retryable",
    }


@pytest.mark.parametrize(
    ("exit_code", "reason", "kinds"),
    [
        (128, "StartError", "PPPR"),  # the command does not exist, nor will it after a restart
        (127, "ContainerCannotRun", "PPPR"),
        (None, "NotSupported", "PPPR"),  # the node cannot run the pod as it is
        (137, "OOMKilled", "PRRR"),
        (0, "OOMKilled", "PRRR"),  # a sidecar or child process was killed; the main program succeeded
        (0, "DeadlineExceeded", "PPRR"),
        (None, "DeadlineExceeded", "PPRR"),
        (137, "ContainerStatusUnknown", "DDDD"),
        (1, "Evicted", "DDDD"),
        (None, "Evicted", "DDDD"),
        (None, "NodeLost", "DDDD"),
        (None, "OutOfcpu", "DDDD"),
        (None, "OutOfnvidia.com/gpu", "DDDD"),
        (None, "UnexpectedAdmissionError", "DDDD"),
        (143, "Terminated", "DDDD"),  # its node was shut down; the exit code says nothing
        (0, "Terminated", "DDDD"),
        (1, "Terminated", "DDDD"),
        (None, "", "DDDD"),  # the pod was lost
    ],
)
def test_classify_reasons_by_restart_policy(exit_code: int | None, reason: str, kinds: str) -> None:
    found = [
        failures.classify(policy, failed(exit_code, reason)) for policy in ("Never", "ExitCode", "OnFailure", "Always")
    ]
    assert "".join(each[0] for each in found) == kinds
    assert failures.classify("ExitCode", failed(exit_code, reason, disruption="TerminationByKubelet")) == "Disruption"


@pytest.mark.parametrize(
    "said",
    [
        'Usage of EmptyDir volume "scratch" exceeds the limit "1Ki". ',
        "Pod ephemeral local storage usage exceeds the total limit of containers 1Ki. ",
        'Container torch exceeded its local ephemeral storage limit "1Ki". ',
    ],
)
def test_pod_evicted_for_its_own_storage_limit_is_classified_as_out_of_memory(said: str) -> None:
    status = {"phase": "Failed", "reason": "Evicted", "message": said}
    words = {"exitCode": 137, "message": "The node was low on resource: memory."}
    container = {"name": "torch", "restartCount": 0, "state": {"terminated": words}}
    for statuses in ([], [container]):
        found = trimmed(status | {"containerStatuses": statuses})
        assert [failures.classify(policy, found)[0] for policy in ("Never", "ExitCode", "OnFailure", "Always")] == list(
            "PRRR"
        )
    target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    assert failures.classify("ExitCode", trimmed(status | {"conditions": [target]})) == "Disruption"
    short = status | {"message": "The node was low on resource: ephemeral-storage."}
    assert failures.classify("ExitCode", trimmed(short)) == "Disruption"


def trimmed(status: dict[str, Any]) -> PodView:
    made = {"name": "digits-master-0", "namespace": "team", "uid": "u", "labels": {}}
    return pod_view.trim({"metadata": made, "spec": template()["spec"], "status": status})


@pytest.mark.parametrize(
    ("code", "cause", "lost_peer", "retried"),
    [
        (1, 137, False, True),
        (1, 143, False, True),
        (1, 139, False, False),
        (1, 3, False, False),
        (1, 1, True, True),
        (1, None, True, True),
        (2, 137, True, False),  # torchrun exits with 1 only
    ],
)
def test_exit_code_1_of_torchrun_is_classified_by_its_cause(
    code: int, cause: int | None, lost_peer: bool, retried: bool
) -> None:
    assert failures.is_retryable(failed(code, cause=cause, lost_peer=lost_peer)) is retried


RUNNING = job(status=status("Running"))
MASTER, WORKER, OTHER = (pod(), pod("Worker", 0), pod("Worker", 1))


def verdict(
    *pods: PodView, of: Any = RUNNING, dead: frozenset[str] = frozenset(), now: float = 0.0
) -> JobVerdict | None:
    found = failures.find_faults(of, pods, dead, frozenset())
    return failures.judge(of, found, 3, now) if found else None


class TestBlame:
    def test_permanent_failure_decides_over_retryable_failures(self) -> None:
        worker = replace(WORKER, phase="Failed", exit_code=1)
        found = verdict(worker, replace(MASTER, phase="Failed", exit_code=2))
        assert found is not None
        assert (found.permanent, found.reason) == (True, "PodFailed")
        assert "digits-master-0" in found.message

    @pytest.mark.parametrize(
        ("master", "worker", "permanent"),
        [
            ({"ended": 10.0}, {"exit_code": 137, "ended": 9.0}, False),
            ({"ended": 9.0}, {"exit_code": 137, "ended": 10.0}, True),
            ({"ended": 9.0}, {"exit_code": 137, "ended": 9.0}, False),  # the pod with the signal ended first
            ({"ended": 9.0}, {"exit_code": 1, "cause": 137, "ended": 9.0}, False),
            ({"ended": 9.0}, {"exit_code": 3, "ended": 9.0}, True),
            ({}, {"exit_code": 3, "ended": 9.0}, True),
            ({"ended": 9.0}, {"exit_code": None, "reason": "Evicted", "ended": 10.0}, False),
            ({"ended": 9.0, "reason": "StartError"}, {"exit_code": None, "reason": "Evicted"}, True),
            ({"ended": 10.0}, {"exit_code": 1, "ended": 9.0, "lost_peer": True}, True),  # the lost peer is the master
            ({"ended": 10.0}, {"exit_code": 143, "ended": 9.0}, True),
            ({"ended": 10.0}, {"exit_code": 1, "cause": 143, "ended": 9.0}, True),
            ({"ended": 9.0, "lost_peer": True}, {"exit_code": 1, "ended": 9.0, "lost_peer": True}, False),
        ],
    )
    def test_first_failure_decides_the_verdict(
        self, master: dict[str, Any], worker: dict[str, Any], permanent: bool
    ) -> None:
        pods = (replace(MASTER, phase="Failed", exit_code=1, **master), replace(WORKER, phase="Failed", **worker))
        found = verdict(*pods, OTHER, now=100.0)
        assert found is not None
        assert found.permanent is permanent

    def test_node_is_blamed_only_for_failures_without_another_cause(self) -> None:
        def blamed(**fields: Any) -> str:
            found = verdict(MASTER, OTHER, replace(WORKER, node="n1", **fields))
            assert found is not None
            return found.node

        assert blamed(phase="Failed", exit_code=137) == "n1"
        assert blamed(phase="Failed", reason="UnexpectedAdmissionError") == "n1"
        assert blamed(phase="Failed", exit_code=1, lost_peer=True) == ""
        assert blamed(phase="Failed", reason="Preempting") == ""
        assert blamed(phase="Failed", reason="Evicted", disruption="TerminationByKubelet: low on disk") == "n1"
        assert blamed(phase="Failed", exit_code=143, disruption="PreemptionByScheduler: room") == ""
        assert blamed(deleting=True) == ""
        for code in (0, 1, 143):
            shut_down = "TerminationByKubelet: Pod was terminated in response to imminent node shutdown."
            assert blamed(phase="Failed", reason="Terminated", exit_code=code, disruption=shut_down) == ""

    @pytest.mark.parametrize("fields", [{"exit_code": 1, "lost_peer": True}, {"exit_code": 143}])
    def test_consequential_failure_waits_for_the_original_one(self, fields: dict[str, Any]) -> None:
        master = replace(MASTER, phase="Failed", ended=NOW.timestamp(), **fields)
        found = verdict(master, WORKER, OTHER, now=NOW.timestamp() + 0.5)
        assert found is not None
        assert (found.permanent, found.wait) == (False, 1.5)
        out_of_memory = replace(WORKER, phase="Failed", exit_code=137, ended=NOW.timestamp())
        known = verdict(master, out_of_memory, OTHER, now=NOW.timestamp() + 0.5)
        assert known is not None
        assert (known.wait, "digits-worker-0" in known.message) == (0.0, True)

    def test_failure_of_one_of_several_pods_waits_for_other_failures(self) -> None:
        master = replace(MASTER, phase="Failed", exit_code=1, ended=NOW.timestamp())
        found = verdict(master, WORKER, OTHER, now=NOW.timestamp() + 0.5)
        assert found is not None
        assert found.wait == 1.5
        alone = verdict(master, of=job({"Master": task()}, status=status("Running")), now=NOW.timestamp() + 0.5)
        assert alone is not None
        assert alone.wait == 0.0
        skewed = verdict(master, WORKER, OTHER, now=NOW.timestamp() - 5.0)
        assert skewed is not None
        assert skewed.wait == 0.0


class TestWhatCounts:
    def test_backoff_limit_of_zero_fails_job_at_its_first_failure(self) -> None:
        found = verdict(replace(WORKER, phase="Failed", exit_code=1), of=job(backoffLimit=0))
        assert found is not None
        assert (found.permanent, found.reason) == (True, "BackoffLimitExceeded")

    def test_disruptions_have_their_own_limit(self) -> None:
        evicted = replace(WORKER, phase="Failed", reason="Evicted")
        for times, permanent in ((2, False), (3, True)):
            found = verdict(evicted, of=job(status=status("Running", disruptions=times), backoffLimit=0))
            assert found is not None
            assert found.permanent is permanent
        assert found.reason == "DisruptionLimitExceeded"

    def test_lost_or_deleted_pod_is_a_disruption_of_the_whole_job(self) -> None:
        lost = replace(WORKER, node="n1")
        for pods, dead in (([lost], {"n1"}), ([replace(lost, deleting=True)], set())):
            found = verdict(MASTER, OTHER, *pods, dead=frozenset(dead))
            assert found is not None
            assert (found.kind, found.whole, found.marks) == ("Disruption", True, ("worker-0",))

    def test_finished_pod_on_a_dead_node_is_not_lost(self) -> None:
        done = replace(WORKER, phase="Succeeded", node="n1")
        assert verdict(done, replace(done, deleting=True), dead=frozenset({"n1"})) is None

    def test_pod_that_failed_before_its_node_died_is_retryable(self) -> None:
        found = verdict(replace(WORKER, phase="Failed", exit_code=1, node="n1"), dead=frozenset({"n1"}))
        assert found is not None
        assert found.kind == "Retryable"

    def test_counted_failure_is_not_counted_again(self) -> None:
        bad = replace(WORKER, phase="Failed", exit_code=1)
        assert verdict(replace(bad, restart=1)) is None  # the pod has another restart generation
        assert verdict(bad, of=job(status=status("Running", replacing=["worker-0"]))) is None

    def test_container_restarted_by_its_node_is_counted_once(self) -> None:
        again = replace(WORKER, self_healing=True, restarts=2, counted_restarts=1, exit_code=1)
        found = verdict(again)
        assert found is not None
        assert (found.kind, found.marks) == ("Retryable", ("worker-0/2",))
        assert verdict(again, of=job(status=status("Running", replacing=["worker-0/2"]))) is None
        assert verdict(again, of=job(status=status("Running", replacing=["worker-0/1"]))) is not None
        assert verdict(again, of=job(status=status("Running", replacing=["worker-0"]))) is None
        assert verdict(replace(again, counted_restarts=2)) is None
        assert verdict(replace(again, self_healing=False)) is None
        assert not failures.find_faults(RUNNING, (again,), frozenset(), frozenset({"worker-0"}))

    @pytest.mark.parametrize(
        ("fields", "scope", "whole"),
        [
            ({}, "Job", True),
            ({}, "Task", False),
            ({"critical": True}, "Task", True),
            ({"auxiliary": True}, "Job", False),
        ],
    )
    def test_failure_restarts_whole_job_depending_on_scope_and_task(
        self, fields: dict[str, Any], scope: str, whole: bool
    ) -> None:
        described = job({"Master": task(), "Worker": task(2, **fields)}, restartScope=scope)
        found = verdict(replace(WORKER, phase="Failed", exit_code=1), of=described)
        assert found is not None
        assert found.whole is whole


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"exit_code": 1, "message": "no data"}, "pod digits-master-0 failed with exit code 1 (Error): no data"),
        ({"reason": "Evicted"}, "pod digits-master-0 failed without an exit code (Evicted)"),
        ({"exit_code": 137, "reason": ""}, "pod digits-master-0 failed with exit code 137"),
        (
            {"exit_code": 143, "disruption": "PreemptionByScheduler: room"},
            "pod digits-master-0 failed with exit code 143 (Error, PreemptionByScheduler)",
        ),
        (
            {"exit_code": 1, "cause": 137},
            "pod digits-master-0 failed with exit code 1 of torchrun, whose process ended with SIGKILL (Error)",
        ),
        ({"exit_code": 1, "cause": 1}, "pod digits-master-0 failed with exit code 1 (Error)"),
        (
            {"exit_code": 137, "reason": "OOMKilled"},
            "pod digits-master-0 failed with exit code 137 (OOMKilled) (it used more memory than its "
            "resources.limits.memory: raise the limit, or let the program use less)",
        ),
        (
            {"exit_code": 137, "reason": "OOMKilled", "message": "2Gi of 1Gi (resources.limits.memory)"},
            "pod digits-master-0 failed with exit code 137 (OOMKilled): 2Gi of 1Gi (resources.limits.memory)",
        ),
        (
            {"exit_code": 0, "reason": "Terminated", "disruption": "TerminationByKubelet: x", "node": "local"},
            "pod digits-master-0 was ended with its node local, which was shut down",
        ),
    ],
)
def test_describe_failed_pod(fields: dict[str, Any], sentence: str) -> None:
    assert failures.describe(pod(phase="Failed", **{"reason": "Error", **fields})) == sentence


@pytest.mark.parametrize(
    ("disruption", "sentence"),
    [
        ("", "pod digits-worker-0 was deleted"),
        ("DeletionByPodGC", "pod digits-worker-0 was deleted (DeletionByPodGC)"),
        ("Evict: Pod is evicted, because of preempt",
         "pod digits-worker-0 was deleted (Evict): Pod is evicted, because of preempt"),
    ],
)  # fmt: skip
def test_message_of_deleted_pod_quotes_its_disruption(disruption: str, sentence: str) -> None:
    found = verdict(replace(WORKER, deleting=True, disruption=disruption))
    assert found is not None
    assert (found.message, found.kind) == (sentence, "Disruption")
