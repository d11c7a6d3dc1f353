"""The picture of the README shows the same headings as `torchq top` today."""

import html
import re
from pathlib import Path

from examples.demo import picture
from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.shell import ROOT
from tests.support.acceptance.stack import Stack, fresh
from tests.support.waiting import until

PICTURES = ROOT / "docs" / "pictures"
HEADING = re.compile(r"[A-Z]{2,}(│|[A-Z ])*")


def headings(file: Path) -> list[str]:
    """Return the headings of the tables of a picture, in their order."""
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", file.read_text(encoding="utf-8"))
    told = (html.unescape(text).replace("\N{NO-BREAK SPACE}", " ").strip() for text in texts)
    return [text for text in told if HEADING.fullmatch(text)]


def test_the_picture_of_the_readme_has_the_headings_of_today(stack: Stack, tmp_path: Path) -> None:
    queue, gate = fresh("queue"), tmp_path / "gate"
    stack.torchq("queue", "create", queue)
    wait = python("import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.05)", gate)
    running, waiting = fresh(), fresh()
    stack.submit(job(running, wait, queue=queue, cpu="3"))
    stack.reach(running, "Running")
    stack.submit(job(waiting, wait, queue=queue, cpu="3"))
    shown = sorted(picture.FILES)

    def made() -> list[list[str]]:
        picture.save(picture.drawn(stack.layout.kubeconfig), tmp_path)
        return [headings(tmp_path / name) for name in shown]

    expected = [headings(PICTURES / name) for name in shown]
    assert {"QUEUE", "SHARE", "JOB", "NEXT", "DEMAND"} <= set(expected[0])
    until(made, lambda found: found == expected, seconds=30)
    gate.touch()
