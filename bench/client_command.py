"""The command of the benchmark of the client.

One rule: a command only reads its options.
"""

from typing import Any

import click

from bench.benchmarks.client import client
from bench.command import COUNT, JSON, measure, show


@click.command("client")
@click.option("--files", type=COUNT, default=client.Options().files, show_default=True, help="files of the packed tree")
@click.option("--kib", type=COUNT, default=client.Options().kib, show_default=True, help="KiB of each file")
@click.option("--rounds", type=COUNT, default=client.Options().rounds, show_default=True, help="of packing and starts")
@click.option("--mib", type=COUNT, default=client.Options().mib, show_default=True, help="MiB that each pod prints")
@click.option("--handles", type=COUNT, default=client.Options().handles, show_default=True, help="jobs to wait for")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=client.Options().seconds, help="of calls, each")
@JSON
def client_command(as_json: bool, **options: Any) -> None:
    """Measure what users of the client meet.

    The figures are of packing, of the time from `torchq run` to the first pod, of calls, followed output and waits."""
    show(measure("client", client.Options(**options), client.run), as_json)
