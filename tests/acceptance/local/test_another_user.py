"""Another Unix user of the machine, who reaches all ports of a local cluster, reads nothing of it there."""

import contextlib
import http.client
import json
import os
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.stack import Stack, fresh, until

UID = 60_123
"""An id that no user of the machine has."""
LISTENS = "0A"
PATHS = ("/", "/healthz?verbose", "/readyz?verbose", "/status", "/metrics", "/v1/queues", "/v1/queues/{queue}",
         "/v1/next?n=9", "/v1/places?queues={queue}", "/v1/scale/plan", "/v1/status", "/v1/settings",
         "/v1/openapi.json", "/v1/jobs/default/{name}/why?uid={uid}", "/v1/jobs/default/{name}/report",
         "/v1/jobs/default/{name}/world", "/apis/train.distributed.io/v1alpha1/torchjobs", "/api/v1/pods")  # fmt: skip


@pytest.fixture
def running(stack: Stack) -> Iterator[dict[str, str]]:
    """Yield what another user may not learn of: a job that runs, and its queue."""
    name, queue = fresh(), fresh("queue")
    stack.torchq("queue", "create", queue)
    stack.submit(job(name, python("import time; time.sleep(600)"), queue=queue))
    item = stack.reach(name, "Running")
    yield {"name": name, "queue": queue, "uid": item["metadata"]["uid"]}
    stack.torchq("job", "delete", name)


def as_another_user(act: Callable[[], Any]) -> Any:
    """Return the JSON value that a function returns in a process of another user; skip the test if that cannot be."""
    if os.getuid() != 0:
        pytest.skip("only root can start a process as another user")
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setgid(UID)
            os.setuid(UID)
            os.write(writer, json.dumps(act()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        text = answers.read()
    os.waitpid(child, 0)
    return json.loads(text)


def ports_of(pids: set[int]) -> list[int]:
    """Return the TCP ports on which processes listen."""
    inodes = set()
    for pid in pids:
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(each))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = (row for row in rows if row[3] == LISTENS and f"socket:[{row[9]}]" in inodes)
    return sorted(int(row[1].partition(":")[2], 16) for row in listening)


def read_all(port: int, paths: list[str]) -> list[tuple[str, int, str]]:
    """Return all answers of a port, over HTTP and HTTPS. A port that does not answer one of them is asked once: it may
    wait for long for what it takes for the rest of a request."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    found = []
    for connect in (http.client.HTTPConnection, partial(http.client.HTTPSConnection, context=context)):
        with contextlib.suppress(OSError, http.client.HTTPException):
            for path in paths:
                with contextlib.closing(connect("127.0.0.1", port, timeout=10)) as connection:
                    connection.request("GET", path, headers={"Host": "localhost"})
                    answer = connection.getresponse()
                    found.append((path, answer.status, answer.read().decode(errors="replace")))
    return found


def test_another_user_of_the_machine_reads_nothing_at_any_port(stack: Stack, running: dict[str, str]) -> None:
    ports = ports_of({pid for name, pid in stack.pids().items() if name != "supervisor"})
    assert len(ports) == 7, "the API server, the coordinator's three, and one of each worker and of the recorder"
    paths = [path.format(**running) for path in PATHS]
    answers = as_another_user(lambda: [each for port in ports for each in read_all(port, paths)])
    assert len(answers) >= len(ports) * len(paths)
    refused = {code for path, code, _ in answers if not path.startswith(("/healthz", "/readyz"))}
    assert refused <= {400, 401, 404, 405}, "nothing but probes is answered"
    told = "".join(text for *_, text in answers)
    assert [secret for secret in (*running.values(), "torchq_", str(stack.data)) if secret in told] == []
    assert any(code == 200 and "ping" in text for _, code, text in answers), "probes are answered"


def test_the_owner_reads_the_metrics_with_the_token_of_the_data_folder(stack: Stack, running: dict[str, str]) -> None:
    status = json.loads(stack.local("status", "-o", "json").out)
    file = Path(status["metrics_token_file"])
    assert file.stat().st_mode & 0o077 == 0
    url = status["metrics_url"]["coordinator"].removeprefix("http://")

    def page() -> str:
        with contextlib.closing(http.client.HTTPConnection(url, timeout=10)) as connection:
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {file.read_text().strip()}"})
            answer = connection.getresponse()
            assert answer.status == 200
            return answer.read().decode()

    until(page, lambda text: running["queue"] in text)
