"""The server of the dashboard in front of a made-up cluster: `server.py JOBS QUEUES CHANGES`.

One rule: only the cluster is made up. The server, its pages and its streams are those of users.
"""

import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from bench.benchmarks.dashboard import scene
from bench.benchmarks.dashboard.scene import Scene
from coordinator.dashboard import server
from coordinator.dashboard.server import Frame
from coordinator.dashboard.visitors import Visitor
from kube.process import gc_tuning

ADDRESS = "127.0.0.1"
COOKIE, SECRET = "bench", "secret"
MADE_UP = "seconds of the made-up cluster: "


class _Everybody:
    """Visitors who are told apart by their cookie, as many as come."""

    def __init__(self) -> None:
        self._first = replace(scene.visitor(), secret=SECRET)
        self._known = dict[str, Visitor]()

    def find(self, cookies: Mapping[str, str], *, is_secure: bool) -> Visitor | None:  # noqa: ARG002
        name = cookies.get(COOKIE, "")
        if name not in self._known:
            self._known[name] = replace(self._first, name=name)
        return self._known[name]

    def end(self, visitor: Visitor) -> None:
        """Let nobody go."""


def main(jobs: int, queues: int, changes: int) -> None:
    """Serve until a signal ends the process. The cluster changes each second, and what that costs is printed: it is
    no cost of the server."""
    gc_tuning.reduce_collections()  # as the commands do
    made = Scene(jobs, queues, changes)

    def step() -> float:
        begun = time.thread_time()
        made.step()
        return time.thread_time() - begun

    async def change() -> None:
        spent = 0.0
        while True:
            await asyncio.sleep(1.0)
            spent += await asyncio.get_running_loop().run_in_executor(None, step)
            print(f"{MADE_UP}{spent}", flush=True)

    def ready(port: int) -> None:
        print(f"ready at {ADDRESS}:{port} .", flush=True)

    asyncio.run(server.serve(Frame("bench", ADDRESS, _Everybody(), cast(Any, made)), 0, ready, change))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
