"""The files that torchq adds to a pod, the annotations that these files follow, and the variables that name them.

One rule: pure, over fresh copies of templates.
"""

from collections.abc import Mapping
from typing import Any

from crds.torchjob.status import Admission
from crds.torchjob.torchjob import TorchJob
from reconcilers.pods import host_file, pod_files, progress_protocol
from reconcilers.pods.environment import Variables
from reconcilers.pods.task_members import PodMember
from reconcilers.settings import ReportAccess


def add(job: TorchJob, member: PodMember, access: ReportAccess | None, spec: dict[str, Any]) -> Variables:
    """Add the files of a pod, and return the variables that name them."""
    has_hosts = host_file.has_file(job, member)
    files = {**progress_protocol.files(access), **(host_file.FILES if has_hosts else {})}
    folder = pod_files.add_files(spec, files)
    if not folder:
        return {}
    hosts = host_file.VARIABLES if has_hosts else {}
    return {**folder, **progress_protocol.variables(job, member.name, access), **hosts}


def annotations(
    job: TorchJob, admission: Admission, member: PodMember, access: ReportAccess | None, hosts: Mapping[int, str]
) -> dict[str, str]:
    """Return the annotations that the files of a pod follow; `hosts` are the host files of the stages."""
    listed = host_file.annotations(job, admission, member, hosts[member.stage])
    return {**progress_protocol.annotations(job, access), **listed}
