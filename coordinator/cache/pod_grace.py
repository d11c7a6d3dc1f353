"""The grace of pods as their templates give it.

One rule: pure, and as the API server reads a template.
"""

from crds.torchjob.torchjob import TorchJob
from kube.api import Manifest

DEFAULT_GRACE = 30
"""The grace, in seconds, of a pod whose template sets none."""
MOST_GRACE = 2**63
"""The longest grace in seconds; no API server accepts more."""


def longest(job: TorchJob) -> int:
    """Return the longest grace of a job's pods in seconds."""
    return max(_grace(task.template["spec"]) for task in job.spec.torch_task_specs.values())


def _grace(spec: Manifest) -> int:
    seconds = spec.get("terminationGracePeriodSeconds")
    return min(seconds, MOST_GRACE) if type(seconds) is int and seconds >= 0 else DEFAULT_GRACE
