"""Calls about queues and about the whole system, and the call of any other command.

One rule: each is the command of the same name, and its answer is what `-o json` prints.
"""

from collections.abc import Mapping
from typing import Any

from coordinator.cli.rpc import command_output
from coordinator.cli.rpc.cluster_access import ClusterAccess
from coordinator.cli.rpc.open_call import OpenCall

Params = Mapping[str, Any]


def queues(access: ClusterAccess, _params: Params, call: OpenCall) -> Any:
    """Return all queues."""
    return command_output.run(access.session, call, "queue", "list", "-o", "json").parse()["items"]


def queue(access: ClusterAccess, params: Params, call: OpenCall) -> Any:
    """Return one queue."""
    return command_output.run(access.session, call, "queue", "show", "-o", "json", "--", params["name"]).parse()


def next_picks(access: ClusterAccess, params: Params, call: OpenCall) -> Any:
    """Return the next picks."""
    options = ["--roomy"] if params.get("roomy") else []
    count = params.get("count", 20)
    return command_output.run(access.session, call, "next", "-n", str(count), *options, "-o", "json").parse()["items"]


def status(access: ClusterAccess, _params: Params, call: OpenCall) -> Any:
    """Return the health of the system, without rates."""
    return command_output.run(access.session, call, "status", "--seconds=0", "-o", "json").parse()


def command(access: ClusterAccess, params: Params, call: OpenCall) -> str:
    """Run a command, and return what it prints."""
    words = params["arguments"]
    command_output.check_callable(words)
    return command_output.run(access.session, call, *words).out
