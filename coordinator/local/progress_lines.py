"""Progress lines of commands whose work must continue without a reader.

One rule: printing never fails. Once the output is closed, nothing more is printed.
"""

import os
import sys

import click


def print_line(text: str) -> None:
    """Print a line about work that must continue even if the terminal closes or the reader of the output ends."""
    try:
        click.echo(text)
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
