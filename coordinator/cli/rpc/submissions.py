"""Calls that make jobs.

One rule: the calls make the same checks as the commands; all jobs of a call are made or none.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from coordinator.cli import submission
from coordinator.cli.rpc.call_context import ClusterAccess, OpenCall, Params
from coordinator.code.selection import SECRET
from coordinator.runs import caller_python, project, request
from coordinator.runs import run as runs
from coordinator.runs.run import PreparedRun
from coordinator.runs.submission_findings import Vetting
from crds.keys import JobKey
from kube.errors import AlreadyExists


def submit(access: ClusterAccess, params: Params, call: OpenCall) -> list[str]:
    """Submit TorchJobs, and return their handles."""
    session = access.session
    named = ((f"manifests[{place}]", body) for place, body in enumerate(params["manifests"]))
    keys = submission.submit(
        session.cluster,
        submission.parse(named, session.namespace, params["folder"]),
        _vetting(access, params, call),
        dry_run=params.get("dry_run", False),
        embedded=session.is_embedded,
    )
    return [str(key) for key in keys]


def run(access: ClusterAccess, params: Params, call: OpenCall) -> str:
    """Submit a command with the present content of a folder, and return the handle of its job."""
    return str(_submit(runs.start, access, _prepare(access, params, call), params, call))


def dry_run(access: ClusterAccess, params: Params, call: OpenCall) -> list[dict[str, Any]]:
    """Return the objects that `run` would submit, after the same checks."""
    prepared = _prepare(access, params, call)
    _submit(runs.dry_run, access, prepared, params, call)
    return [*prepared.objects, prepared.manifest]


def _submit(
    submit: Callable[..., JobKey | None], access: ClusterAccess, prepared: PreparedRun, params: Params, call: OpenCall
) -> JobKey | None:
    """Submit a run, or check it. The error about a name that is taken names the solution in the terms of Python."""
    try:
        return submit(access.session.cluster, prepared, _vetting(access, params, call))
    except runs.RunNameTaken as error:
        raise AlreadyExists(
            f'{error}: give another name, or delete the job with if_exists="replace", or use it with if_exists="attach"'
        ) from error


def _prepare(access: ClusterAccess, params: Params, call: OpenCall) -> PreparedRun:
    """Pack the folder. Reports to the caller which files were packed, and which files look like secrets and were left
    out.

    The job runs with the caller's Python; if its folder has no program `python`, with the first `python` on PATH.
    """
    session, environ, python = access.session, access.session.environ, params["python_folder"]
    given = {name: value for name, value in params.items() if name not in ("python_folder", "anyway")}
    document = project.with_defaults({"namespace": session.namespace, **given}, Path(params["folder"]))
    prepared = runs.prepare(
        session.cluster,
        request.parse(document),
        embedded=session.is_embedded,
        python_folder=python if python and Path(python, "python").exists() else caller_python.find_folder(environ),
        code_store=session.settings.code_store,
        tell=lambda line: call.tell(line, "info"),
    )
    if (code := prepared.code) is not None:
        call.tell(code.describe(), "info")
        if secrets := [each for each in code.left_out if each.endswith(SECRET)]:
            call.tell(f"left out of the job's code: {', '.join(secrets)}", "warning")
        if warning := code.warning():
            call.tell(warning, "warning")
    return prepared


def _vetting(access: ClusterAccess, params: Params, call: OpenCall) -> Vetting:
    anyway = params.get("anyway", False)
    return submission.vetting(access.session, anyway=anyway, tell=lambda text: call.tell(text, "warning"))
