"""The commands of docs/operators.md that need no Helm, on a cluster of real processes."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.stack import Stack, fresh, until
from tests.support.waiting import patient

PAGE = Path(__file__).parents[3] / "docs" / "operators.md"


def commands(section: str) -> Iterator[list[str]]:
    """Yield the words of each command in the blocks of a section, without comments and redirections."""
    text = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    [found] = [part for part in text if part.startswith(f"{section}\n")]
    for block in re.findall(r"^```\n(.*?)^```", found, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            yield from (part.split() for part in re.split(r" && | +# .*", line) if part)


def test_the_commands_for_a_stuck_job_answer(stack: Stack) -> None:
    queue, name = fresh("queue"), fresh()
    stack.torchq("queue", "create", queue, "--quota", "jobs=1", "--hold")
    stack.submit(job(name, python("pass"), queue=queue))
    until(lambda: stack.try_run("job", "why", name).out, lambda answer: "QueueHeld" in answer)
    words = {"NAME": name, "NAMESPACE": "default", "QUEUE": queue}
    answers: dict[tuple[str, ...], str] = {}
    for program, *arguments in commands("Debug a stuck job"):
        assert program == "torchq"
        answers[tuple(arguments)] = stack.torchq(*(words.get(each, each) for each in arguments))
    assert len(answers) == 4
    assert all(answers.values())


def test_a_backup_by_the_commands_of_the_page_can_be_restored(stack: Stack) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on PATH")
    queue = fresh("queue")
    stack.torchq("queue", "create", queue)
    *backups, restore = commands("Back up and restore")
    assert len(backups) == 2
    for backup in backups:
        redirection = backup.index(">")
        file = stack.folder / backup[redirection + 1]
        made = subprocess.run(
            [*backup[:redirection], "--kubeconfig", str(stack.layout.kubeconfig)],
            capture_output=True,
            check=True,
            timeout=patient(),
        )
        file.write_bytes(made.stdout)
    assert restore[0] == "torchq"
    assert queue in stack.torchq(*restore[1:])


def test_the_page_has_a_section_for_each_task_of_an_admin() -> None:
    headings = re.findall(r"^## (.*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == [
        "Install",
        "Size",
        "Monitor",
        "Alerts",
        "Upgrade and roll back",
        "Rotate",
        "Restart in place with OpenKruise",
        "Back up and restore",
        "Fail over",
        "Debug a stuck job",
        "Uninstall",
        "Several clusters and installations",
    ]
