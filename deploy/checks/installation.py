"""All checks of the objects of one installation.

One rule: an installation is sound if no check has a problem.
"""

from collections.abc import Collection, Iterable, Mapping

from deploy.checks import access, objects, pod_specs, schemas, selectors
from deploy.checks.objects import Manifest

NOTHING: Mapping[str, str] = {}


def problems(
    documents: Iterable[Manifest],
    versions: Iterable[str],
    *,
    existing: Collection[str] = (),
    labels: Mapping[str, str] = NOTHING,
    has_roles: bool = True,
) -> list[str]:
    """Return everything that is wrong with the objects, on these versions of Kubernetes."""
    found = list(documents)
    if unclear := objects.identities(found):
        return unclear
    return [
        *objects.labels(found, labels),
        *selectors.problems(found),
        *pod_specs.problems(found, existing),
        *(access.problems(found, existing) if has_roles else ()),
        *(text for version in versions for text in schemas.problems(found, version)),
    ]
