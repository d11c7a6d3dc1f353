"""A cluster with queues and jobs of all kinds, the dashboard of its user, and browsers that look at it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.support import ports
from tests.support.acceptance import browser as browsers
from tests.support.acceptance.browser import Browsers, Dashboard, User
from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.stack import Stack, fresh

HOSTILE = "<script>document.title='taken'</script>"
LINES = """
import os, sys, time
print("the first line", flush=True)
print(sys.argv[2], "\\u202eright to left\\u2066", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""


@dataclass(frozen=True)
class Scene:
    """Jobs in a queue: `running` writes lines that would harm a careless page, and `waiting` has no room."""

    stack: Stack
    gate: Path
    """A file that lets the running job end."""
    queue: str
    running: str
    waiting: str
    ended: str

    @property
    def paths(self) -> tuple[str, ...]:
        """The path of each page."""
        jobs = (f"/jobs/default/{name}" for name in (self.running, self.waiting))
        question = f"/act?verb=weight&kind=queue&name={self.queue}"
        return "/", f"/queues/{self.queue}", "/jobs", *jobs, "/usage", question


@pytest.fixture(scope="package")  # its start takes seconds, and its event loop must not outlast these tests
def browser() -> Iterator[Browser]:
    with browsers.running() as found:
        yield found


@pytest.fixture(scope="module")
def scene(browser: Browser, shared: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Make the jobs, which no test changes."""
    gate = tmp_path_factory.mktemp("gate") / "gate"
    found = Scene(shared, gate, *(fresh(word) for word in ("queue", "running", "waiting", "ended")))
    shared.torchq("queue", "create", found.queue, "--weight", "3", "--quota", "cpu=6")
    lines = job(found.running, python(LINES, gate, HOSTILE), queue=found.queue, cpu="2")
    links = '{"board": "https://board.example.com/1", "' + HOSTILE + '": "javascript:alert(1)"}'
    lines["metadata"]["annotations"] = {"train.distributed.io/links": links}
    shared.submit(job(found.ended, python("print('done')"), queue=found.queue), lines)
    shared.reach(found.running, "Running")
    shared.reach(found.ended, "Succeeded")
    shared.submit(job(found.waiting, python("pass"), queue=found.queue, cpu="4"))
    yield found
    gate.touch()
    shared.clear()


@pytest.fixture(scope="module")
def dashboard(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    with ports.reserve() as port:
        found = Dashboard(port, tmp_path_factory.mktemp("dashboard"), scene.stack.environment)
        try:
            yield found
            assert found.stop() == 0
        finally:
            found.kill()


@pytest.fixture(scope="module")
def cookies(browser: Browser, dashboard: Dashboard) -> object:
    """The cookies of the browser that opened the address of the command."""
    context = browser.new_context()
    context.new_page().goto(dashboard.server + dashboard.start())
    found = context.storage_state()
    context.close()
    return found


@pytest.fixture
def make_user(browser: Browser, dashboard: Dashboard, cookies: object) -> Iterator[Browsers]:
    """Yield what makes users of the dashboard. At the end no page has done what no page does."""
    found = Browsers(browser, dashboard, cookies)
    yield found
    found.close()


@pytest.fixture
def user(make_user: Browsers) -> User:
    return make_user()
