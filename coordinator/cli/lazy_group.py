"""Groups of commands that live in modules of their own.

One rule: a command's module is imported when the command is first asked for. What runs a cluster takes a second to
import, which somebody who looks at a queue should not wait for.
"""

import gc
import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import click

NONE: Mapping[str, str] = MappingProxyType({})


class OnDemand(click.Group):
    """A group whose commands are named first and imported later."""

    def __init__(self, *arguments: Any, later: Mapping[str, str] = NONE, **options: Any) -> None:
        """As a click.Group; `later` says, by a command's name, where it is: `module:attribute`."""
        super().__init__(*arguments, **options)
        self._later = later

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted({*super().list_commands(ctx), *self._later})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported by now; None if there is none."""
        if cmd_name in self._later and cmd_name not in self.commands:
            self.add_command(_imported(self._later[cmd_name]), cmd_name)
        return super().get_command(ctx, cmd_name)

    def load(self) -> None:
        """Import all commands, and theirs."""
        context = click.Context(self)
        for name in self.list_commands(context):
            command = self.get_command(context, name)
            if isinstance(command, OnDemand):
                command.load()


def _imported(place: str) -> click.Command:
    module, _, attribute = place.partition(":")
    found: click.Command = getattr(importlib.import_module(module), attribute)
    # What was imported lives as long as the process: looking through it, at last when the process ends, took a sixth of
    # the time of a command.
    gc.freeze()
    return found
