"""The devices that resource claims of pods ask for (dynamic resource allocation), as the API server stores the claims.

One rule: a claim of a pod is read until the pod is on a node. From then on the API server keeps the claim as it is;
before, its owner may delete it and create another one of the same name.
"""

import contextlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from crds.api_resources import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Resource
from crds.resources.amounts import NOTHING, Amounts, add, increase
from crds.torchjob import claims, demand
from crds.torchjob.claims import ClaimReference
from crds.torchjob.torchjob import TorchJob
from kube import errors
from kube.api import Cluster, Manifest
from reconcilers.views.pod_view import PodView

REMEMBERED = 10_000
"""The number of pods on nodes whose devices are remembered; those of a forgotten pod are read again."""
FEW = 4
"""The most claims of one look that are read singly, and the most templates; more are read with one list of their
namespace."""
_KINDS = (RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ClaimReader:
    """Reads the claims for one process; shared between threads."""

    cluster: Cluster
    _bound: OrderedDict[str, Amounts] = field(default_factory=OrderedDict)
    """The devices of pods that are on a node, by uid."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of_templates(self, job: TorchJob) -> Mapping[str, Amounts] | None:
        """Return the devices of one pod by task type, as the job's templates ask for them; None if a claim does not
        exist or cannot be read.
        """
        named = {name: claims.references(task.template["spec"], {}) for name, task in job.spec.tasks.items()}
        known = self._read(job.metadata.namespace, {each for refs in named.values() for each in refs})
        if any(each not in known for refs in named.values() for each in refs):
            return None
        return {name: _sum(refs, known) for name, refs in named.items()}

    def with_devices(self, pods: list[PodView]) -> list[PodView]:
        """Return the pods of one job; the requests of each include the devices of its claims."""
        claiming = [pod for pod in pods if pod.claims]
        if not claiming:
            return pods
        with self._lock:
            found = {pod.uid: self._bound[pod.uid] for pod in claiming if pod.uid in self._bound}
        unknown = [pod for pod in claiming if pod.uid not in found]
        known = self._read(pods[0].namespace, {each for pod in unknown for each in pod.claims})
        found |= {pod.uid: _sum(pod.claims, known) for pod in unknown}
        self._remember(
            {pod.uid: found[pod.uid] for pod in unknown if pod.node and all(each in known for each in pod.claims)}
        )
        return [_with(pod, found[pod.uid]) if pod.uid in found else pod for pod in pods]

    def _remember(self, bound: Mapping[str, Amounts]) -> None:
        with self._lock:
            self._bound.update(bound)
            while len(self._bound) > REMEMBERED:
                self._bound.popitem(last=False)

    def _read(self, namespace: str, wanted: set[ClaimReference]) -> dict[ClaimReference, Amounts]:
        """Return the devices of claims and templates, without those that do not exist or may not be read."""
        found: dict[ClaimReference, Amounts] = {}
        for is_template in (False, True):
            names = {each.name for each in wanted if each.is_template is is_template}
            try:
                for manifest in self._manifests(_KINDS[is_template], namespace, names):
                    spec = manifest.get("spec") or {}
                    claim = (spec.get("spec") or {}) if is_template else spec
                    name = ClaimReference(manifest["metadata"]["name"], is_template)
                    found[name] = claims.requested_devices(claim)
            except (errors.Forbidden, errors.NotFound) as error:  # a cluster without claims has no list of them
                log.warning("resource claims of namespace %s are not counted: %s", namespace, error)
        return found

    def _manifests(self, resource: Resource, namespace: str, names: set[str]) -> Iterator[Manifest]:
        """Yield the objects of these names that exist, with few requests however many names a pod has."""
        if len(names) > FEW:
            listed = self.cluster.list(resource, namespace).items
            yield from (manifest for manifest in listed if manifest["metadata"]["name"] in names)
            return
        for name in names:
            with contextlib.suppress(errors.NotFound):
                yield self.cluster.get(resource, name, namespace)


def _sum(references: Iterable[ClaimReference], known: Mapping[ClaimReference, Amounts]) -> Amounts:
    total: dict[str, int] = {}
    for each in references:
        increase(total, known.get(each, NOTHING))
    return total


def _with(pod: PodView, devices: Amounts) -> PodView:
    """Return a pod with its devices; too many resources stay too many to be charged."""
    amounts = sorted(add(dict(pod.requests), devices).items())
    return replace(pod, requests=tuple(amounts[: demand.MOST_NAMES + 1]))
