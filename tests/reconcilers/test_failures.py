"""What a failed pod means: the table."""

import pytest

from reconcilers import failures
from tests.reconcilers.builders import job, pod, status


@pytest.mark.parametrize(
    ("exit_code", "reason", "permanent"),
    [
        (1, "Error", True),
        (2, "Error", True),
        (126, "Error", True),
        (127, "Error", True),
        (128, "StartError", True),  # the command does not exist; it will not exist next time
        (130, "Error", False),
        (137, "OOMKilled", False),
        (139, "Error", False),
        (143, "Error", False),
        (137, "ContainerStatusUnknown", False),
        (1, "Evicted", False),
        (None, "Evicted", False),
        (None, "NodeLost", False),
        (None, "OutOfcpu", False),
        (None, "", False),  # lost
        (None, "NotSupported", True),  # the node cannot run the pod as it is
        (0, "DeadlineExceeded", True),
    ],
)
def test_under_exit_code(exit_code: int | None, reason: str, permanent: bool) -> None:
    failed = pod(phase="Failed", exit_code=exit_code, reason=reason)
    assert failures.is_permanent("ExitCode", failed) is permanent
    assert failures.is_permanent("Never", failed)
    assert failures.is_permanent("OnFailure", failed) is (reason in failures.NEVER_BEGAN)
    assert not failures.is_permanent("Always", failed)


def test_one_that_fails_for_good_decides_whoever_else_failed() -> None:
    worker, master = pod("Worker", 0, "Failed", exit_code=1), pod("Master", 0, "Failed", exit_code=2)
    verdict = failures.judge(job(status=status("Running")), (worker, master))
    assert (verdict.permanent, verdict.reason) == (True, "PodFailed")
    assert "digits-master-0" in verdict.message


def test_a_limit_of_none() -> None:
    verdict = failures.judge(job(backoffLimit=0), (pod("Worker", 0, "Failed", exit_code=1),))
    assert (verdict.permanent, verdict.reason) == (True, "BackoffLimitExceeded")


@pytest.mark.parametrize(
    ("exit_code", "reason", "message", "sentence"),
    [
        (1, "Error", "no data", "pod digits-master-0 failed with exit code 1 (Error): no data"),
        (None, "Evicted", "", "pod digits-master-0 failed without an exit code (Evicted)"),
        (137, "", "", "pod digits-master-0 failed with exit code 137"),
    ],
)
def test_the_sentence(exit_code: int | None, reason: str, message: str, sentence: str) -> None:
    assert failures.describe(pod(phase="Failed", exit_code=exit_code, reason=reason, message=message)) == sentence
