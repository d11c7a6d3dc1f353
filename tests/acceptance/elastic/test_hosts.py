"""The host files of an elastic job on real processes: true at the start, and after each resize of pods that run on."""

from pathlib import Path

from tests.support.acceptance.jobs import job
from tests.support.acceptance.stack import Stack, fresh, until

COPY = """
folder=$1; until [ -e "$folder/go" ]; do
  "$TORCHQ_DISCOVER_HOSTS" >"$folder/$TORCHQ_POD.new"; mv "$folder/$TORCHQ_POD.new" "$folder/$TORCHQ_POD"; sleep 0.1
done
"""


def hosts(name: str, size: int) -> list[str]:
    return [f"{name}-worker-{index}:2" for index in range(size)]


def known(folder: Path, size: int) -> list[list[str]]:
    """Return the hosts that the first workers know; none of a worker that has not begun."""
    files = sorted(path for path in folder.iterdir() if path.name[-1].isdigit())[:size]
    return [path.read_text().split() for path in files]


def test_the_hosts_of_a_pod_follow_each_resize(stack: Stack, tmp_path: Path) -> None:
    name = fresh("hosts")
    body = job(name, ["sh", "-c", COPY, "sh", str(tmp_path)], workers=2, policy="OnFailure", cpu="100m")
    tasks = body["spec"]["torchTaskSpecs"]
    body["spec"]["torchTaskSpecs"] = {"Worker": {**tasks["Worker"], "dependsOn": []}}
    body["spec"]["torchElasticPolicy"] = {
        "numMinReplicas": 1,
        "numMaxReplicas": 3,
        "nprocPerNode": 2,
        "mode": "InPlaceRestart",  # without a rendezvous store, which needs PyTorch
    }
    stack.submit(body)
    until(lambda: known(tmp_path, 2), lambda found: found == [hosts(name, 2)] * 2)
    for size in (3, 1):
        stack.torchq("job", "scale", name, str(size))
        until(lambda: known(tmp_path, 3)[:size], lambda found: found == [hosts(name, size)] * size)  # noqa: B023
    (tmp_path / "go").touch()
    stack.reach(name, "Succeeded")
