"""The options of a benchmark: one field is the default, the check and the help of one option of its command.

    rate: float = option(20.0, "jobs per second", above=0)     --rate FLOAT RANGE  jobs per second  [default: 20.0; x>0]

One rule: an option is said once. A field without `option` is no option of the command.
"""

from collections.abc import Iterator, Sequence
from dataclasses import field, fields
from typing import Any

import click

FILE = click.Path(dir_okay=False)
KUBECONFIG = click.Path(exists=True, dir_okay=False)


def option(
    default: Any,
    help: str = "",
    *,
    least: float | None = 1,
    above: float | None = None,
    most: float | None = None,
    choices: Sequence[str] = (),
    path: click.Path | None = None,
    flags: str = "",
) -> Any:
    """Return a field of frozen Options that is an option, too.

    A number is at least `least` (None: any number) or larger than `above`, and at most `most`. The value of a text
    option is one of `choices`, or a file. `flags` are the names of the option if the option is not named after the
    field.
    """
    kind: click.ParamType[Any] | None = click.Choice(choices) if choices else path
    match default[0] if isinstance(default, tuple) else default:
        case float():
            kind = click.FloatRange(least if above is None else above, most, min_open=above is not None)
        case int() if not isinstance(default, bool):
            kind = click.INT if least is None else click.IntRange(int(least))
    return field(default=default, metadata={"help": help or None, "type": kind, "flags": flags})


def click_options(options: type) -> Iterator[click.Option]:
    """Yield the options of a command whose benchmark takes Options of this type."""
    for each in fields(options):
        if not each.metadata:
            continue
        flags = each.metadata["flags"] or f"--{each.name.replace('_', '-')}"
        is_flag, is_pair = isinstance(each.default, bool), "/" in flags
        yield click.Option(
            [flags, each.name],
            type=each.metadata["type"],
            is_flag=is_flag,
            multiple=isinstance(each.default, tuple),
            default=None if each.default == "" else each.default,
            show_default=is_pair or not is_flag,
            help=each.metadata["help"],
            **({"flag_value": not each.default} if is_flag and not is_pair else {}),
        )
