"""Ranks by the labels of nodes, on real processes."""

from pathlib import Path

import pytest

from tests.acceptance.conftest import Make
from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.stack import Stack, fresh, until

NOTING = """
import os, sys, time
names = ("POD", "RANK", "PET_NODE_RANK", "WORLD_SIZE", "MASTER_PORT")
with open(os.path.join(sys.argv[1], os.environ["POD"]), "a") as file:
    hosts = [line.split()[0] for line in open(os.environ["TORCHQ_HOSTFILE"])]
    print(*(os.environ[name] for name in names), *hosts, file=file)
while not os.path.exists(os.path.join(sys.argv[1], "go")):
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def ranked(make_stack: Make) -> Stack:
    stack = make_stack(TORCHQ_TOPOLOGY_LABELS="example.org/rack,kubernetes.io/hostname")
    said = stack.up()
    assert said.code == 0, said
    return stack


def test_pods_get_their_ranks_at_their_gates_and_keep_them_in_a_restart_in_place(ranked: Stack, tmp_path: Path) -> None:
    name = fresh("places")
    ranked.submit(job(name, python(NOTING, tmp_path), workers=2, policy="OnFailure", cpu="100m"))
    ranked.reach(name, "Running")

    def starts(number: int) -> list[list[str]]:
        def look() -> list[list[str]]:
            files = [path for path in tmp_path.iterdir() if path.name.startswith(name)]
            return [line.split() for path in sorted(files) for line in path.read_text().splitlines()]

        return list(until(look, lambda lines: len(lines) == number))

    pods = [f"{name}-master-0", f"{name}-worker-0", f"{name}-worker-1"]
    found = starts(3)
    assert [entry[:4] for entry in found] == [[pod, str(n), str(n), "3"] for n, pod in enumerate(pods)]
    assert len({entry[4] for entry in found}) == 1
    assert [entry[5:] for entry in found] == [pods] * 3
    wide = ranked.torchq("job", "show", name, "-o", "wide")
    rows = [line.split() for line in wide.splitlines() if line.startswith(pods[2])]
    assert rows[0][-2] == "2"
    assert rows[0][-1].startswith("kubernetes.io/hostname=")
    ranked.torchq("job", "restart", name)
    again = starts(6)
    assert sorted(again) == sorted(found + found)
    (tmp_path / "go").touch()
    ranked.reach(name, "Succeeded")
