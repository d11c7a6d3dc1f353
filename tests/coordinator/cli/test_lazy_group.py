"""Commands are imported on demand, and every listed command exists."""

import subprocess
import sys

import pytest
from click import Context, Group

from coordinator.cli import main
from coordinator.cli.lazy_group import LazyGroup
from tests.support.waiting import patient

pytestmark = pytest.mark.servers

HEAVY = "'reconcilers.reconcile' in sys.modules or 'coordinator.doctor.state_checks' in sys.modules"


def misnamed(group: Group) -> list[str]:
    context = Context(group)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    wrong = [name for name, command in commands.items() if command is None or command.name != name]
    return wrong + [each for command in commands.values() if isinstance(command, Group) for each in misnamed(command)]


def test_every_listed_command_can_be_imported() -> None:
    assert not misnamed(main.main)
    job = main.main.get_command(Context(main.main), "job")
    assert isinstance(job, LazyGroup)
    assert {"list", "why", "cancel", "restart"} <= set(job.list_commands(Context(job)))


def test_queue_commands_do_not_import_reconciler_or_doctor() -> None:
    code = f"import sys, coordinator.cli.main, coordinator.cli.commands.queue; sys.exit({HEAVY})"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=patient()).returncode == 0


RUN = """
import sys
from coordinator.cli.main import main
main(sys.argv[2:], standalone_mode=False)
print(*set(sys.argv[1].split(",")) & sys.modules.keys(), file=sys.stderr)
"""
SERVERS = "redis,rq,kubernetes.dynamic,requests_oauthlib,reconcilers.plan.plan,queues.picking.picker"


@pytest.mark.parametrize(
    ("unused", "command"),
    [
        ("pydantic,kubernetes,urllib3,orjson,yaml,coordinator.cli.session", ["--version"]),
        (f"{SERVERS},crds.torchjob.torchjob", ["status", "--help"]),
        (f"{SERVERS},crds.torchjob.torchjob", ["job", "list", "--help"]),
    ],
)
def test_a_command_imports_nothing_large_that_it_does_not_use(unused: str, command: list[str]) -> None:
    code = [sys.executable, "-c", RUN, unused, *command]
    done = subprocess.run(code, check=True, timeout=patient(), capture_output=True, text=True)
    assert done.stderr == "\n"
