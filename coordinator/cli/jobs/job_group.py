"""`torchq job`: the commands about jobs.

One rule: a command is only named here, so that no command waits for the imports of another command.
"""

import click

from coordinator.cli.session import JobGroup

COMMANDS = {
    "show": "coordinator.cli.commands.job:show",
    "why": "coordinator.cli.commands.inspect:why",
    "position": "coordinator.cli.commands.inspect:position",
    "restart": "coordinator.cli.commands.job_restart:restart",
    "scale": "coordinator.cli.commands.job_scale:scale",
    "list": "coordinator.cli.jobs.job_list:list_jobs",
    "logs": "coordinator.cli.jobs.job_output:logs",
    "reports": "coordinator.cli.jobs.job_output:reports",
    "wait": "coordinator.cli.jobs.wait:wait",
    **{
        name: f"coordinator.cli.commands.job_control:{name}"
        for name in ("suspend", "resume", "hold", "bump", "move", "cancel", "delete")
    },
}


@click.group(cls=JobGroup, lazy_commands=COMMANDS)
def job() -> None:
    """Show and control jobs. JOB is a name, namespace/name, or the handle that `submit` printed."""
