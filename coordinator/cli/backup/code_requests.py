"""The requests about the code of jobs that are restored.

One rule: the code of a job is there, with the new job as its owner, before the job is let go.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.cli.backup import code
from coordinator.cli.backup.code import CodeName
from coordinator.cli.backup.saved import SavedJob
from coordinator.code import config_maps
from coordinator.code.archive import Archive
from coordinator.code.config_map_store import ConfigMapStore
from coordinator.code.errors import StoreFailed
from coordinator.runs import manifest
from crds import labels
from crds.api_resources import CONFIG_MAPS, TORCHJOBS
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster, Manifest


@dataclass(frozen=True, slots=True)
class CodeRequests:
    """The code of a backup, and that of the cluster where the backup has none."""

    cluster: Cluster
    saved: Mapping[CodeName, Archive]

    def has(self, job: SavedJob) -> bool:
        """Return whether the code of a job can be restored, or the job needs none."""
        return job.code is None or job.code in self.saved or self._stored(job, job.code) is not None

    def try_to_keep(self, job: SavedJob) -> None:
        """Let the API server check the requests that keep the code of a job, by dry runs. Raises what it refuses."""
        archive = self._archive(job)
        for part in config_maps.manifests(archive, 1, job.namespace) if archive is not None else ():
            name = part["metadata"]["name"]
            try:
                self.cluster.get(CONFIG_MAPS, name, job.namespace)
                self.cluster.patch(CONFIG_MAPS, name, {}, job.namespace, dry_run=True)
            except errors.NotFound:
                self.cluster.create(CONFIG_MAPS, part, job.namespace, dry_run=True)

    def release(self, job: SavedJob, stored: Manifest) -> Manifest:
        """Keep the code of a job that was created on hold, let the job go, and return it.

        Raises Conflict if the job has changed meanwhile, StoreFailed, and any ClusterError.
        """
        archive = self._archive(job)
        if archive is None:
            raise StoreFailed(f"{job.code}: deleted meanwhile, and not in the backup; the job stays on hold")
        source = ConfigMapStore(self.cluster).keep(archive, JobKey.of(stored))
        final = manifest.with_source(job.body, source)
        spec = {"schedulingPolicy": {"hold": job.hold}}
        if final != job.body:  # another copy of the code is used
            spec["torchTaskSpecs"] = final["spec"]["torchTaskSpecs"]
        patch = {"metadata": {"annotations": {labels.CODE_PENDING: None}}, "spec": spec}
        version = stored["metadata"]["resourceVersion"]
        return self.cluster.patch(TORCHJOBS, job.name, patch, job.namespace, resource_version=version)

    def _archive(self, job: SavedJob) -> Archive | None:
        return None if job.code is None else self.saved.get(job.code) or self._stored(job, job.code)

    def _stored(self, job: SavedJob, name: CodeName) -> Archive | None:
        """Return the code in the ConfigMaps that the pods of a job mount; None if the cluster does not have it."""
        try:
            parts = [self.cluster.get(CONFIG_MAPS, each, job.namespace) for each in code.mounted(job.body["spec"])]
        except errors.NotFound:
            return None
        return code.archive(name, parts)
