"""The ModelVersions of a namespace, and which of them a user means.

One rule: a name without a version means the newest version at the moment of the question, and a job gets the answer, so
that each of its runs reads the same files.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from coordinator.runs.errors import InvalidRun
from crds.api_resources import MODEL_VERSIONS
from crds.model_version import ModelVersion
from kube import errors
from kube.api import Cluster, Manifest

_NEVER = datetime.min.replace(tzinfo=UTC)


class NoSuchModel(InvalidRun):
    """No ModelVersion is the one that a user means."""


def read(cluster: Cluster, namespace: str) -> list[ModelVersion]:
    """Return the versions of all models of a namespace, the newest first.

    Raises any ClusterError, and NoSuchModel where the cluster has no such kind.
    """
    try:
        items = cluster.list(MODEL_VERSIONS, namespace).items
    except errors.NotFound as error:
        raise NoSuchModel(
            f"the cluster has no {MODEL_VERSIONS.kind}s of {MODEL_VERSIONS.api_version}: an admin installs the kind "
            "with `torchq crds | kubectl apply -f -`"
        ) from error
    return sorted(map(ModelVersion.model_validate, items), key=_age, reverse=True)


def _age(version: ModelVersion) -> tuple[datetime, str]:
    """Return the sort key of a version. A restored version is as old as the one that was saved."""
    since = version.status.finish_time or version.metadata.creation_timestamp or _NEVER
    return since, version.metadata.name


def named(versions: Iterable[ModelVersion], text: str) -> list[ModelVersion]:
    """Return the versions that a user means by NAME or NAME@VERSION, the newest first. Raises NoSuchModel."""
    name, _, version = text.partition("@")
    of_model = [each for each in versions if each.spec.model_name == name]
    found = [each for each in of_model if not version or version in (each.spec.version, each.metadata.name)]
    if found:
        return found
    if of_model:
        others = ", ".join(each.label for each in of_model[:5])
        raise NoSuchModel(f"there is no version {version} of model {name}; there are {others}")
    raise NoSuchModel(f"there is no model {name}: a job makes one with `torchq run --model {name}`, when it succeeds")


def inputs(versions: Sequence[ModelVersion], texts: Sequence[str], *, embedded: bool) -> list[Manifest]:
    """Return spec.modelInputs for the models that a user names. Raises NoSuchModel."""
    found = [_input(named(versions, text)[0], embedded=embedded) for text in texts]
    names = [each["modelName"] for each in found]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise NoSuchModel(f"model {twice} is named twice: a job reads one version of a model")
    return found


def _input(version: ModelVersion, *, embedded: bool) -> Manifest:
    spec = version.spec
    if not spec.path or not (embedded or spec.claim_name):
        lacking = "folder" if not spec.path else "claim"
        raise NoSuchModel(f"{version.label}: its ModelVersion names no {lacking}, so no job can read it")
    fields = {
        "modelName": spec.model_name,
        "version": spec.version or version.metadata.name,
        "claimName": spec.claim_name,
        "path": spec.path,
        "digest": version.status.digest,
    }
    return {name: value for name, value in fields.items() if value}
