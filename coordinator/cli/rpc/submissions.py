"""Calls that make jobs.

One rule: the same checks as those of the commands; all jobs of a call are made or none.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from coordinator.cli import outlook, submission
from coordinator.cli.rpc.cluster_access import ClusterAccess
from coordinator.cli.rpc.open_call import OpenCall
from coordinator.cli.runs import code_summary
from coordinator.code.selection import SECRET
from coordinator.runs import caller_python, project, request
from coordinator.runs import run as runs
from coordinator.runs.run import CodeSummary, PreparedRun
from kube.errors import AlreadyExists

Params = Mapping[str, Any]


def submit(access: ClusterAccess, params: Params, call: OpenCall) -> list[str]:
    """Submit TorchJobs, and return their handles."""
    session = access.session
    named = ((f"manifests[{place}]", body) for place, body in enumerate(params["manifests"]))
    keys = submission.submit(
        session.cluster,
        submission.parse(named, session.namespace, params["folder"]),
        dry_run=params.get("dry_run", False),
        check_jobs=outlook.FeasibilityCheck(session),
        anyway=params.get("anyway", False),
        embedded=access.is_embedded,
        tell=partial(_warn, call),
    )
    return [str(key) for key in keys]


def run(access: ClusterAccess, params: Params, call: OpenCall) -> str:
    """Submit a command with the present content of a folder, and return the handle of its job."""
    prepared = _prepare(access, params, call)
    with _explained_name():
        key = runs.start(
            access.session.cluster,
            prepared,
            check_jobs=outlook.FeasibilityCheck(access.session),
            anyway=params.get("anyway", False),
            tell=partial(_warn, call),
        )
    return str(key)


@contextmanager
def _explained_name() -> Iterator[None]:
    """Say in Python's words what helps against a name that is taken."""
    try:
        yield
    except runs.RunNameTaken as error:
        raise AlreadyExists(
            f'{error}: give another name, or delete the job with if_exists="replace", or use it with if_exists="attach"'
        ) from error


def dry_run(access: ClusterAccess, params: Params, call: OpenCall) -> list[dict[str, Any]]:
    """Return what `run` would submit, after the same checks."""
    prepared = _prepare(access, params, call)
    with _explained_name():
        runs.dry_run(
            access.session.cluster,
            prepared,
            check_jobs=outlook.FeasibilityCheck(access.session),
            anyway=params.get("anyway", False),
            tell=partial(_warn, call),
        )
    return [*prepared.objects, prepared.manifest]


def _prepare(access: ClusterAccess, params: Params, call: OpenCall) -> PreparedRun:
    """Pack the folder. Tells the caller what was packed, and which files look like secrets and were left out."""
    session = access.session
    given = {name: value for name, value in params.items() if name not in ("python_folder", "anyway")}
    document = project.with_defaults({"namespace": session.namespace, **given}, Path(params["folder"]))
    prepared = runs.prepare(
        session.cluster,
        request.parse(document),
        embedded=access.is_embedded,
        python_folder=_python_folder(params["python_folder"], session.environ),
        code_store=session.settings.code_store,
        tell=lambda line: call.tell(line, "info"),
    )
    if prepared.code is not None:
        _tell_code(prepared.code, call)
    return prepared


def _python_folder(folder: str, environ: Mapping[str, str]) -> str:
    """Return the folder of the caller's Python; if that has none of the name `python`, the first one on PATH."""
    return folder if folder and (Path(folder) / "python").exists() else caller_python.find_folder(environ)


def _tell_code(code: CodeSummary, call: OpenCall) -> None:
    secrets = [each for each in code.left_out if each.endswith(SECRET)]
    call.tell(code_summary.format_summary(code), "info")
    if secrets:
        call.tell(f"left out of the job's code: {', '.join(secrets)}", "warning")


def _warn(call: OpenCall, text: str) -> None:
    call.tell(text, "warning")
