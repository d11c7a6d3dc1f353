"""How commands show things: columns for people, JSON or YAML for programs.

One rule: columns are stable and plain, so that `awk` works on them.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
import orjson
import yaml

Row = Sequence[object]


def columns(header: Sequence[str], rows: Sequence[Row]) -> str:
    """Left-aligned columns, three spaces apart, as kubectl prints them."""
    table = [list(map(str, row)) for row in (header, *rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(header))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    )


def show(value: Any, form: str) -> None:
    """Print a JSON value in the form that `-o` asks for."""
    if form == "json":
        click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
    else:
        click.echo(yaml.safe_dump(value, sort_keys=False), nl=False)


def age(since: str | None, now: datetime) -> str:
    """Time since a timestamp in the one or two largest units: 45s, 12m, 3h20m, 5d4h."""
    if not since:
        return "-"
    seconds = max(0, int((now - datetime.fromisoformat(since)).total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if minutes < 2:
        return f"{seconds}s"
    if hours < 2:
        return f"{minutes}m"
    if days < 2:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"


def now() -> datetime:
    """The present, for ages."""
    return datetime.now(UTC)
