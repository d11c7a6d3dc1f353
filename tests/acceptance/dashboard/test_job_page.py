"""The page of a real job, as a program without a script reads it: the page follows the job, and outlives it."""

import html
import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from coordinator.local import die_with_parent
from tests.support import ports
from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.stack import Stack, fresh, torchq_command, until

CODE = """
import os, sys, time
print("<b>hello</b> from", os.environ["POD"], flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""
LINKS = {"train.distributed.io/links": json.dumps({"board": "https://board.example.com/1", "bad": "javascript:x"})}


class Reader:
    """Reads pages of one dashboard."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

    def read(self, path: str) -> str:
        """Return a page as text; an error page, too."""
        try:
            with self._opener.open(self._server + path, timeout=30) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()


@pytest.fixture
def reader(shared: Stack, tmp_path: Path) -> Iterator[Reader]:
    """Run the dashboard of the shared cluster, and open it."""
    log = tmp_path / "dashboard.log"
    with ports.reserve() as port:
        command = torchq_command("dashboard", "--no-open", "--port", str(port))
        with log.open("wb") as output:
            process = subprocess.Popen(
                die_with_parent.wrap_command(command),
                env=shared.environment,
                cwd=tmp_path,
                stdout=output,
                stderr=output,
            )
        try:
            found = until(lambda: re.search(r"(http://[^/\s]+)(/open\S+)", log.read_text()))
            reader = Reader(found[1])
            reader.read(found[2])
            yield reader
        finally:
            process.kill()
            process.wait()


def test_the_page_follows_a_job_to_its_end_and_stays_when_the_job_is_deleted(
    shared: Stack, reader: Reader, tmp_path: Path
) -> None:
    name, gate = fresh(), tmp_path / "gate"
    path = f"/jobs/default/{name}"
    assert "there is no such page" in reader.read(path)
    made = job(name, python(CODE, gate), workers=1)
    made["metadata"]["annotations"] = LINKS
    shared.submit(made)
    shared.reach(name, "Running")
    line = f"&lt;b&gt;hello&lt;/b&gt; from {name}-master-0"
    page = until(lambda: reader.read(path), lambda text: f"{name} runs" in text and line in text)
    assert "job default/" in page
    assert 'href="https://board.example.com/1"' in page
    assert "bad: not a whole http or https address" in page
    until(lambda: reader.read(f"{path}?pod=worker-0"), lambda text: f"from {name}-worker-0" in text)
    own = html.unescape(re.findall(r'data-page="([^"]+)"', page)[0])
    gate.touch()
    shared.reach(name, "Succeeded")
    until(lambda: reader.read(own), lambda text: f"{name} has succeeded" in text)
    shared.torchq("job", "delete", name)
    until(lambda: not shared.exists(name))
    gone = until(lambda: reader.read(own), lambda text: "This job is deleted" in text)
    assert line in gone
    until(lambda: reader.read(path), lambda text: "there is no such page" in text)
    shared.submit(job(name, python("pass")))
    replaced = until(lambda: reader.read(own), lambda text: "another job has its name now" in text)
    assert f'<a href="{path}">' in replaced
    assert "another job has its name" not in reader.read(path)
    shared.reach(name, "Succeeded")
