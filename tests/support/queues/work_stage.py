"""A test bed with a Redis server, a dispatching coordinator, and real worker processes."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from crds.keys import JobKey
from queues import redis_keys
from queues.dispatch.redis_work import RedisWork
from queues.redis import connection
from queues.tasks import Offer
from queues.work import WorkSettings
from tests.support.waiting import SECONDS, until

SETTINGS = WorkSettings(running_lease=1.0, dispatched_lease=20.0)


class Stage:
    """A Redis server and worker processes. The test plays the coordinator."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.client = connection.connect(url, client_name="test")
        self.work = RedisWork(self.client, SETTINGS)
        self.workers: list[subprocess.Popen[bytes]] = []

    def reset(self) -> None:
        self.client.flushall()
        self.client.mset({redis_keys.EPOCH: 1, redis_keys.LAYOUT: redis_keys.LAYOUT_NUMBER})

    def start(self, threads: int = 16, slow: float = 1.0, drain: float = SECONDS) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "tests.support.queues.sample_worker",
            self.url,
            *map(str, (threads, slow, drain)),
        ]
        with open(self.folder / f"log-{len(self.workers)}", "wb") as log:
            self.workers.append(subprocess.Popen(command, stdout=log, stderr=log))
        return self.workers[-1]

    def started(self, count: int = 1) -> None:
        until(lambda: self.client.hlen(redis_keys.MEMBERS) >= count and self.client.scard("rq:workers") >= count)

    def log(self, worker: int = 0) -> list[str]:
        return (self.folder / f"log-{worker}").read_text().splitlines()

    def offer(self, *names: str) -> None:
        self.work.offer([Offer(key=JobKey("team", name, "uid"), tenant="a") for name in names])

    def runs(self, word: str) -> list[str]:
        """Return the names of the keys whose runs recorded this word (`begin` or `end`), in order."""
        lines = [line.decode().split() for line in self.client.lrange("runs", 0, -1)]
        return [name for what, name, *_ in lines if what == word]

    def until(self, condition: Callable[[], object]) -> None:
        """Dispatch repeatedly until the condition holds."""
        until(lambda: (self.work.dispatch(), condition())[1])

    def settled(self) -> bool:
        """Return whether no key waits or runs."""
        return not self.client.exists("torchq:work:records")

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self.client.close()
