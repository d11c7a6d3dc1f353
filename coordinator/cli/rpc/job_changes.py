"""Calls that change a job.

One rule: each is the command of the same name, so that the same rules, events and messages hold.
"""

from collections.abc import Mapping
from typing import Any

from coordinator.cli.rpc import command_output
from coordinator.cli.rpc.cluster_access import ClusterAccess
from coordinator.cli.rpc.open_call import OpenCall
from torchq._errors import Invalid

Params = Mapping[str, Any]
RESTARTS = {None: (), "InPlace": ("--in-place",), "Recreate": ("--recreate",)}


class JobChange:
    """A change that needs a job and a reason only."""

    def __init__(self, verb: str) -> None:
        self._verb = verb

    def __call__(self, access: ClusterAccess, params: Params, call: OpenCall) -> None:
        """Run the command."""
        _run(access, self._verb, [], params, call)


def change(verb: str) -> JobChange:
    """Return the method of a command."""
    return JobChange(verb)


def restart(access: ClusterAccess, params: Params, call: OpenCall) -> None:
    """Restart a job, a task or a pod."""
    how = params.get("how")
    if how not in RESTARTS:
        raise Invalid(f"how: must be InPlace or Recreate, not {how!r}")
    options = [f"--{name}={params[name]}" for name in ("task", "index") if params.get(name) is not None]
    _run(access, "restart", [*options, *RESTARTS[how]], params, call)


def move(access: ClusterAccess, params: Params, call: OpenCall) -> None:
    """Move a waiting job to another queue."""
    _run(access, "move", [f"--to={params['queue']}"], params, call)


def scale(access: ClusterAccess, params: Params, call: OpenCall) -> None:
    """Change the number of workers."""
    if params["workers"] < 0:
        raise Invalid(f"workers: must not be negative, not {params['workers']}")
    command_output.run(access.session, call, "job", "scale", "--", params["job"], str(params["workers"]))


def _run(access: ClusterAccess, verb: str, options: list[str], params: Params, call: OpenCall) -> None:
    if params.get("reason"):
        options = [*options, f"--reason={params['reason']}"]
    command_output.run(access.session, call, "job", verb, *options, "--", params["job"])
