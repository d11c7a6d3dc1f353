"""The variables by which a process of a job knows its place in the job.

One rule: read when asked, because torchrun and users set variables while a program runs.
"""

from __future__ import annotations

from collections.abc import Mapping

RESULT_FILE = "TORCHQ_RESULT_FILE"
OUTPUT = "TORCHQ_OUTPUT"
MODEL = "TORCHQ_MODEL_PATH"
MODEL_INPUT = "TORCHQ_MODEL_INPUT_"
"""The beginning of the name of each variable with the folder of a model that the job reads."""
REPORT_VARIABLES = ("TORCHQ_REPORT_URL", "TORCHQ_REPORT_TOKEN", "TORCHQ_JOB", "TORCHQ_POD")
"""The variables that a process needs to report to the coordinator."""


def is_in_job(environ: Mapping[str, str]) -> bool:
    """Return whether the process belongs to a job of torchq."""
    return bool(environ.get(RESULT_FILE) or environ.get("TORCHQ_JOB"))


def is_rank_zero(environ: Mapping[str, str]) -> bool:
    """Return whether the process has rank 0. A process without a rank is alone, so it has rank 0, too."""
    return environ.get("RANK", "").strip() in ("", "0")


def is_first_of_pod(environ: Mapping[str, str]) -> bool:
    """Return whether the process is the first process that torchrun has started in its pod, or the only process."""
    return environ.get("LOCAL_RANK", "").strip() in ("", "0")


def report_access(environ: Mapping[str, str]) -> tuple[str, str, str, str] | None:
    """Return the URL of the coordinator, the token, the job and the pod; None where reports are not sent."""
    url, token, job, pod = (environ.get(name, "") for name in REPORT_VARIABLES)
    return (url, token, job, pod) if url and token and job and pod else None
