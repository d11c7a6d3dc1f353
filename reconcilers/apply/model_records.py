"""The creation of the ModelVersion of a job.

One rule: the creation may be repeated. A name that is taken by this job is its own earlier record; a name that is taken
by another one leads to a longer name. A refusal gives an Event and never an error, because the job has succeeded.
"""

from collections.abc import Callable

from crds import model_version
from crds.api_resources import CRDS, MODEL_VERSIONS
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster
from reconcilers.apply.object_writer import ObjectWriter
from reconcilers.pods.model_record import NOT_RECORDED
from reconcilers.values import EmitEvent, RecordModel

DEFINITION = f"{MODEL_VERSIONS.plural}.{MODEL_VERSIONS.group}"


def record(objects: ObjectWriter, clock: Callable[[], float], action: RecordModel) -> None:
    """Create the ModelVersion of a job, or an Event that says why the job has none."""
    if refused := create(objects.cluster, objects.key, action):
        objects.emit_event(refused, clock())


def create(cluster: Cluster, key: JobKey, action: RecordModel) -> EmitEvent | None:
    """Create the ModelVersion of a job, unless the job has one. Return the Event that says why the job has none.

    Raises Unreachable, TooManyRequests or ServerError where a repetition may succeed.
    """
    wanted = action.spec
    try:
        for version in model_version.versions(key.uid):
            named = wanted.model_copy(update={"version": version})
            if _is_there(cluster, key, RecordModel(named, action.status)):
                return None
        cause = "each name that the version may have is taken"
    except errors.NotFound:
        cause = (
            f"the cluster has no {CRDS.kind} {DEFINITION}: an admin installs it with `torchq crds | kubectl apply -f -`"
        )
    except (errors.Forbidden, errors.Invalid) as error:
        cause = str(error)
    return EmitEvent(NOT_RECORDED, f"model {wanted.model_name} has no ModelVersion: {cause}", warning=True)


def _is_there(cluster: Cluster, key: JobKey, action: RecordModel) -> bool:
    """Create a ModelVersion under one name. Return whether the job has it now, and not another job."""
    body = model_version.manifest(action.spec, action.status)
    while True:
        try:
            cluster.create(MODEL_VERSIONS, body, key.namespace)
        except errors.AlreadyExists:
            try:
                found = cluster.get(MODEL_VERSIONS, body["metadata"]["name"], key.namespace)
            except errors.NotFound:
                continue  # the other one was deleted meanwhile
            return bool((found.get("spec") or {}).get("createdByUid") == key.uid)
        return True
