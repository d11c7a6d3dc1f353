"""The Event about a host file that a command names and no pod has."""

from dataclasses import replace
from typing import Any

import pytest

from reconcilers.plan.plan import plan
from reconcilers.pods.host_file import MOST_HOSTS
from reconcilers.settings import ReconcileSettings
from reconcilers.values import EmitEvent, WriteStatus
from tests.support.reconcilers.builders import NOW, RESERVATION, job, observe, task


def naming(count: int, text: str, **fields: Any) -> dict[str, Any]:
    """Return a task whose command has this text."""
    found = task(count, **fields)
    found["template"]["spec"]["containers"][0]["args"] = ["sh", "-c", text]
    return found


def told(tasks: dict[str, Any], *topology: str) -> list[str]:
    """Return the Events at the admission of a job."""
    found = job(tasks)
    picked = replace(RESERVATION, charge=found.charge)
    actions = plan(observe(found, reservation=picked), ReconcileSettings(topology=topology), NOW).actions
    assert any(isinstance(each, WriteStatus) and "admission" in each.change["status"] for each in actions)
    return [each.message for each in actions if isinstance(each, EmitEvent)]


HOSTS = "deepspeed --hostfile $TORCHQ_HOSTFILE"
SCRIPT = "horovodrun --host-discovery-script $TORCHQ_DISCOVER_HOSTS"
UNSET = "TORCHQ_HOSTFILE is not set in digits-"


@pytest.mark.parametrize(
    ("tasks", "topology", "said"),
    [
        ({"Worker": naming(2, HOSTS)}, (), []),
        ({"Worker": naming(2, "torchrun")}, ("rack",), []),
        ({"Worker": naming(2, HOSTS)}, ("rack",), []),
        ({"Worker": naming(MOST_HOSTS + 1, HOSTS)}, (), [f"{UNSET}worker-0: its world has more than {MOST_HOSTS}"]),
        ({"AIMaster": naming(1, HOSTS), "Worker": task(2)}, (), [f"{UNSET}aimaster-0: torchq gives it no rank"]),
        ({"Worker": naming(1, SCRIPT)}, (), ["TORCHQ_DISCOVER_HOSTS is not set in digits-worker-0: it trains with no"]),
    ],
)
def test_job_is_told_once_why_its_pods_have_no_host_file(
    tasks: dict[str, Any], topology: tuple[str, ...], said: list[str]
) -> None:
    found = told(tasks, *topology)
    assert len(found) == len(said)
    assert all(message.startswith(words) for message, words in zip(found, said, strict=True))
