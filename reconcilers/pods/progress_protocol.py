"""The variables and the file by which training code reports with the progress protocol of Kubeflow Trainer.

One rule: pure, over fresh copies of templates. Code that speaks the protocol needs no package of torchq.

The Trainer of Hugging Face transformers (as of 5.24) speaks the protocol by itself where it finds the URL. It reads
the token from a file and not from a variable. Without a CA it accepts a URL without TLS.
"""

from collections.abc import Mapping
from typing import Any

from crds import labels
from crds.torchjob.torchjob import TorchJob
from reconcilers.pods import pod_files
from reconcilers.pods.environment import Variables
from reconcilers.pods.pod_files import PodFile
from reconcilers.settings import ReportAccess

GROUP = "trainer.kubeflow.org"
"""The API group in the path of a URL."""
URL, TOKEN = "KUBEFLOW_TRAINER_SERVER_URL", "KUBEFLOW_TRAINER_SERVER_TOKEN"
TOKEN_FILE = "report-token"


def annotations(job: TorchJob, access: ReportAccess | None) -> dict[str, str]:
    """Return the annotation of a pod that the file with the token follows."""
    if access is None or not access.kubeflow_progress:
        return {}
    return {labels.REPORT_TOKEN: access.token(job.metadata.uid)}


def files(access: ReportAccess | None) -> Mapping[str, PodFile]:
    """Return the file with the token."""
    return {TOKEN_FILE: PodFile(labels.REPORT_TOKEN)} if access is not None and access.kubeflow_progress else {}


def variables(job: TorchJob, pod: str, access: ReportAccess | None) -> Variables:
    """Return the variables of a pod with the file; nothing if pods do not report so."""
    if access is None or not access.kubeflow_progress:
        return {}
    path = f"/apis/{GROUP}/v1alpha1/namespaces/{job.metadata.namespace}/trainjobs/{job.metadata.name}/status"
    return {URL: f"{access.url}{path}?pod={pod}", TOKEN: pod_files.path(TOKEN_FILE)}


def without_own_server(env: Variables, container: Mapping[str, Any]) -> Variables:
    """Return the variables for a container. A container that reports to a server of the user does not get the token,
    which is for no other server than that of torchq."""
    if all(entry["name"] != URL for entry in container.get("env") or ()):
        return env
    return {name: value for name, value in env.items() if name != TOKEN}
