"""Groups of commands that live in modules of their own, and the handling of the errors of commands.

One rule: a command's module is imported when the command is first used. The modules that run a cluster take a second
to import, and a command that shows a queue must not wait for them.
"""

import gc
import importlib
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import click

from coordinator import terminal
from coordinator.errors import CoordinatorError
from crds.errors import InvalidObject
from history.errors import HistoryError
from kube.errors import ClusterError
from queues.errors import QueueError

NO_COMMANDS: Mapping[str, str] = MappingProxyType({})
USER_ERRORS = (CoordinatorError, ClusterError, QueueError, InvalidObject, HistoryError)
INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 and the number of SIGINT."""


class LazyGroup(click.Group):
    """A group that imports a command when the command is first used."""

    def __init__(self, *arguments: Any, lazy_commands: Mapping[str, str] = NO_COMMANDS, **options: Any) -> None:
        """Create a click.Group. `lazy_commands` maps the name of a command to its place, `module:attribute`."""
        super().__init__(*arguments, **options)
        self._lazy_commands = lazy_commands

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, sorted."""
        return sorted({*super().list_commands(ctx), *self._lazy_commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of that name; None if no such command exists."""
        if cmd_name in self._lazy_commands and cmd_name not in self.commands:
            self.add_command(find(self._lazy_commands[cmd_name]), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the first argument. For an unknown name, the error has the nearest names of all commands,
        including commands that are not imported yet."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=self.list_commands(ctx), ctx=ctx) from None


class CommandGroup(LazyGroup):
    """A group that turns the errors of its commands into messages, and whose output passes the door to the terminal."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the program. Messages about errors pass the door, too."""
        with terminal.doors():
            return super().main(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. An expected error becomes one message and exit code 1; Ctrl-C becomes exit code 130 without
        a message.
        """
        try:
            return super().invoke(ctx)
        except USER_ERRORS as error:
            raise click.ClickException(find("coordinator.cli.session:format_error")(error)) from error
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        except BrokenPipeError:
            sys.stderr.close()  # the reader of the output has ended, as `head` does
            raise SystemExit(0) from None


def find(place: str) -> Any:
    """Import and return the object at a place, `module:attribute`."""
    module, _, attribute = place.partition(":")
    # Imported objects live as long as the process. The garbage collection of these objects took a sixth of the time of
    # a command.
    gc.disable()
    try:
        return getattr(importlib.import_module(module), attribute)
    finally:
        gc.freeze()
        gc.enable()
