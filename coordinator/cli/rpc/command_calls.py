"""Calls that are commands of `torchq`: an answer is what `-o json` prints.

One rule: each is the command of the same name, so that the same rules, events and messages hold.
"""

from collections.abc import Callable, Sequence
from typing import Any

from coordinator.cli.rpc import command_output
from coordinator.cli.rpc.call_context import ClusterAccess, OpenCall, Params
from coordinator.cli.rpc.command_output import CommandOutput
from torchq._errors import Invalid, Refused

Method = Callable[[ClusterAccess, Params, OpenCall], Any]
RESTARTS = {None: (), "InPlace": ("--in-place",), "Recreate": ("--recreate",)}


def reads(*words: str, of: str = "") -> Method:
    """Return the method that answers with the output of a command; `of` is the parameter that names the object."""

    def read(access: ClusterAccess, params: Params, call: OpenCall) -> Any:
        named = ("--", params[of]) if of else ()
        return command_output.run(access.session, call, *words, "-o", "json", *named).parse()

    return read


def queues(access: ClusterAccess, params: Params, call: OpenCall) -> Any:
    """Return all queues."""
    return reads("queue", "list")(access, params, call)["items"]


def next_picks(access: ClusterAccess, params: Params, call: OpenCall) -> Any:
    """Return the next picks."""
    options = ["--roomy"] if params.get("roomy") else []
    return reads("next", "-n", str(params.get("count", 20)), *options)(access, params, call)["items"]


def position(access: ClusterAccess, params: Params, call: OpenCall) -> int | None:
    """Return the place of a job in its queue; None if the job does not wait in a queue."""
    document = reads("job", "position", of="job")(access, params, call)
    place = document.get("position") if document.get("state") == "waiting" else None
    return None if place is None else int(place)


def command(access: ClusterAccess, params: Params, call: OpenCall) -> str:
    """Run any command, and return the output of the command."""
    words = params["arguments"]
    command_output.check_callable(words)
    return command_output.run(access.session, call, *words).out


def changes(verb: str) -> Method:
    """Return the method of a change of one job that needs a reason only."""

    def change(access: ClusterAccess, params: Params, call: OpenCall) -> None:
        _run(access, verb, [], params, call)

    return change


def changes_all(verb: str) -> Method:
    """Return the method of a change of several jobs, in the order in which the command changes them. The call raises
    Refused with the errors of the jobs that were not changed.
    """

    def change(access: ClusterAccess, params: Params, call: OpenCall) -> None:
        if params["jobs"]:
            output = _run(access, verb, [], params, call, params["jobs"])
            if output.failed:
                raise Refused(output.notes.strip())

    return change


def restart(access: ClusterAccess, params: Params, call: OpenCall) -> None:
    """Restart a job, a task or a pod."""
    how = params.get("how")
    if how not in RESTARTS:
        raise Invalid(f"how: must be InPlace or Recreate, not {how!r}")
    options = [f"--{name}={params[name]}" for name in ("task", "index") if params.get(name) is not None]
    _run(access, "restart", [*options, *RESTARTS[how]], params, call)


def move(access: ClusterAccess, params: Params, call: OpenCall) -> None:
    """Move a waiting job to another queue."""
    _run(access, "move", [f"--to={params['queue']}", *_anyway(params)], params, call)


def scale(access: ClusterAccess, params: Params, call: OpenCall) -> None:
    """Change the number of workers."""
    if params["workers"] < 0:
        raise Invalid(f"workers: must not be negative, not {params['workers']}")
    words = [*_anyway(params), "--", params["job"], str(params["workers"])]
    command_output.run(access.session, call, "job", "scale", *words)


def _anyway(params: Params) -> list[str]:
    return ["--anyway"] if params.get("anyway") else []


def _run(
    access: ClusterAccess, verb: str, options: list[str], params: Params, call: OpenCall, jobs: Sequence[str] = ()
) -> CommandOutput:
    if params.get("reason"):
        options = [*options, f"--reason={params['reason']}"]
    return command_output.run(access.session, call, "job", verb, *options, "--", *(jobs or (params["job"],)))
