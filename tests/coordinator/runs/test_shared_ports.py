"""Ports of the machine that two pods of one job would both use, and what pods share anyway, on one machine."""

from typing import Any

import pytest

from coordinator.runs import obstacles
from tests.support.coordinator.desk import manifest, task


def with_port(count: int, **port: Any) -> dict[str, Any]:
    made = task(count)
    made["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 80, **port}]
    return made


@pytest.mark.parametrize(
    ("tasks", "embedded", "fields"),
    [
        ({"Worker": with_port(2, hostPort=80)}, True, ["Worker"]),
        ({"Worker": with_port(2, hostPort=80)}, False, []),
        ({"Worker": with_port(1, hostPort=80)}, True, []),
        ({"Worker": with_port(2)}, True, []),
        ({"Worker": with_port(2, hostPort=80, protocol="UDP")}, True, []),
        ({"Master": with_port(1, hostPort=80), "Worker": with_port(1, hostPort=80)}, True, ["Worker"]),
        ({"Master": with_port(1, hostPort=80), "Worker": with_port(1, hostPort=81)}, True, []),
    ],
)
def test_port_that_two_pods_of_a_job_want_is_refused_on_one_machine(
    tasks: dict[str, Any], embedded: bool, fields: list[str]
) -> None:
    found = list(obstacles.of_ports(manifest("train", "a", tasks), embedded=embedded))
    assert [each.field for each in found] == [f"spec.torchTaskSpecs.{name}.template.spec" for name in fields]
    assert all(each.firm for each in found)


def test_what_all_pods_share_anyway_is_said_on_one_machine() -> None:
    asking = task(1)
    asking["template"]["spec"] |= {"hostNetwork": True, "hostIPC": True}
    body = manifest("train", "a", {"Master": asking, "Worker": task(2)})
    found = list(obstacles.of_sharing(body, embedded=True))
    where = "spec.torchTaskSpecs.Master.template.spec"
    assert [(each.field, each.firm) for each in found] == [(f"{where}.hostNetwork", False), (f"{where}.hostIPC", False)]
    assert list(obstacles.of_sharing(body, embedded=False)) == []
