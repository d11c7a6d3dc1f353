"""The rules for jobs and their code that hold after every change, and at the end.

One rule: the observer reads only the objects of the API server, never the beliefs of a program.
"""

import base64
from collections.abc import Iterator, Mapping

from coordinator.code import config_maps
from coordinator.code.archive import Archive
from crds import labels
from crds.api_resources import CONFIG_MAPS, TORCHJOBS
from embedded.apiserver.storage.objects import StoredObject
from kube.api import Manifest
from tests.faults.api import Api
from tests.faults.clients.client import Client


class CodeObserver:
    """Knows the content that belongs to each name."""

    def __init__(self, api: Api, archives: Mapping[str, Archive]) -> None:
        self._api = api
        self._archives = archives
        """The archives by the beginning of their digests."""

    def broken(self) -> Iterator[str]:
        """Yield what is wrong now, however far the programs are."""
        parts = {each.name: each for each in self._parts()}
        for part in parts.values():
            yield from self._wrong(part)
        for each in self._api.objects(TORCHJOBS):
            job = each.manifest()
            if not is_held(job) and not each.deleting:
                yield from self._without_code(job, parts)

    def left(self, clients: list[Client]) -> Iterator[str]:
        """Yield what is wrong once all programs and the garbage collector have ended."""
        jobs = {each.uid: each.manifest() for each in self._api.objects(TORCHJOBS)}
        for part in self._parts():
            if not jobs.keys() & set(part.owners):
                yield f"ConfigMap {part.name} has no owner that exists"
            if not jobs.keys() >= set(part.owners):
                yield f"ConfigMap {part.name} has an owner that does not exist"
        for client in clients:
            yield from self._half(client, jobs)

    def _parts(self) -> list[StoredObject]:
        return [each for each in self._api.objects(CONFIG_MAPS) if labels.CODE in each.labels]

    def _wrong(self, part: StoredObject) -> Iterator[str]:
        manifest = part.manifest()
        if not part.owners:
            yield f"ConfigMap {part.name} has no owner: nothing will ever delete it"
        if len(part.owners) > config_maps.MOST_OWNERS:
            yield f"ConfigMap {part.name} has {len(part.owners)} owners"
        if not manifest.get("immutable"):
            yield f"ConfigMap {part.name} can be changed"
        archive = self._archives[manifest["metadata"]["labels"][labels.CODE]]
        number = int(part.name.rpartition("-")[2])
        begin = (number - 1) * config_maps.PART_BYTES
        content = archive.content[begin : begin + config_maps.PART_BYTES]
        if base64.b64decode(manifest["binaryData"][config_maps.KEY]) != content or archive.short not in part.name:
            yield f"ConfigMap {part.name} has another content than its name says"

    def _without_code(self, job: Manifest, parts: Mapping[str, StoredObject]) -> Iterator[str]:
        metadata = job["metadata"]
        archive = self._archives[metadata["labels"][labels.CODE]]
        wanted = code_of(job)
        if wanted and wanted not in [config_maps.names(archive, copy) for copy in range(1, 9)]:
            yield f"job {metadata['name']} has volumes that are not one copy of its code: {wanted}"
        for name in wanted:
            if name not in parts or parts[name].deleting:
                yield f"job {metadata['name']} runs without its code: {name} is gone"
            elif metadata["uid"] not in parts[name].owners:
                yield f"job {metadata['name']} runs without being an owner of its code {name}"

    def _half(self, client: Client, jobs: Mapping[str, Manifest]) -> Iterator[str]:
        if client.result is not None:
            job = jobs.get(client.result.uid)
            if job is not None and is_held(job) and client.result.uid in client.made:
                yield f"{client.name} returned a job that is still on hold"
        elif not client.dead:
            is_named = "may exist" in str(client.error)
            is_late = "late" in client.faults.values()
            for job in (jobs[uid] for uid in client.made if uid in jobs):
                if not is_named and not (is_late and is_held(job)):
                    yield f"{client.name} failed ({client.error!r}) and left a job"


def is_held(job: Manifest) -> bool:
    """Return whether a job is on hold."""
    return bool((job["spec"].get("schedulingPolicy") or {}).get("hold"))


def code_of(job: Manifest) -> list[str]:
    """Return the names of the ConfigMaps that a job's pods read, in the order of the parts."""
    [task] = job["spec"]["torchTaskSpecs"].values()
    volumes = task["template"]["spec"].get("volumes") or ()
    return [volume["configMap"]["name"] for volume in volumes if "configMap" in volume]
