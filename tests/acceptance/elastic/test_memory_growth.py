"""A job whose memory grows, on a whole cluster: the node kills its pod, and the replacement has enough memory."""

from pathlib import Path

from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.stack import Stack, fresh

MIB = 2**20
USING = f"""
import pathlib, sys, time
first, done = map(pathlib.Path, sys.argv[2:])
is_first = not first.exists()
first.touch()
block = bytearray(int(sys.argv[1]) * {MIB})
time.sleep(600 if is_first else 1)  # the node measures now and then, and rarely on a busy machine
done.touch()
"""


def test_pod_that_used_up_its_memory_gets_more(stack: Stack, tmp_path: Path) -> None:
    name, done = fresh("grow"), tmp_path / "done"
    body = job(name, python(USING, 250, tmp_path / "first", done))
    (task,) = body["spec"]["torchTaskSpecs"].values()
    task |= {"restartPolicy": "OnFailure", "memoryGrowth": {"factorPercent": 400, "max": "1Gi"}}
    (container,) = task["template"]["spec"]["containers"]
    container["resources"]["limits"] = {"memory": "100Mi"}
    stack.submit(body)
    status = stack.reach(name, "Succeeded")["status"]
    assert done.exists()
    assert status["memory"] == {"Master": 400 * MIB}
    assert status["restartCount"] == 1
    assert status["admission"]["charge"]["memory"] == 400 * MIB
    assert "MemoryGrown" in stack.torchq("job", "show", name)
