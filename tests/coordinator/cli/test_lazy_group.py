"""Commands are imported on demand, and every listed command exists."""

import subprocess
import sys

from click import Context, Group

from coordinator.cli import main
from coordinator.cli.lazy_group import LazyGroup
from tests.support.waiting import patient

HEAVY = "'reconcilers.reconcile' in sys.modules or 'coordinator.doctor.checks' in sys.modules"


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


def test_load_imports_the_commands_of_groups() -> None:
    main.main.load()
    job = main.main.commands["job"]
    assert isinstance(job, Group)
    assert "restart" in job.commands


def test_queue_commands_do_not_import_reconciler_or_doctor() -> None:
    code = f"import sys, coordinator.cli.main, coordinator.cli.commands.queue; sys.exit({HEAVY})"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=patient()).returncode == 0
