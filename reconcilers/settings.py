"""How a worker reconciles.

One rule: one frozen object, made once by the wiring.
"""

from dataclasses import dataclass
from typing import Literal

from crds.api_resources import Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSettings:
    """Times are seconds."""

    master_address: Literal["service", "loopback"] = "service"
    """MASTER_ADDR: the headless service's name, or 127.0.0.1 with the reservation's port where pods share a machine."""
    make_pods: bool = True
    """False: a job is admitted and no more; who runs it and says how it ended is somebody else."""
    admission_timeout: float = 600.0
    """How long an admitted job may take to run before it is sent back; 0: as long as it likes."""
    admission_backoff: float = 60.0
    """How long it waits then; twice as long each time, an hour at most."""
    admission_tries: int = 5
    """After so many such admissions in a row it waits for its owner."""
    gang_scheduler: Literal["none", "volcano", "koordinator", "coscheduling", "kubernetes"] = "none"
    """Who binds the pods of jobs that do not say so themselves."""
    pods_at_once: bool = False
    """True: pods are made before their group is let in, so that a cluster autoscaler sees them."""
    served: frozenset[Resource] = frozenset()
    """The kinds of others that were installed when the process began: of Kubernetes' own gangs the version."""
    in_place: Literal["recreate", "local", "kruise", "kubernetes"] = "recreate"
    """How the containers of a pod that is well are restarted with its job; recreate: the pod is replaced."""
    in_place_timeout: float = 60.0
    """How long that may take before the pod is replaced after all."""
    most_disruptions: int = 100
    """Failures that are not the job's fault, before it fails nevertheless."""
    restart_backoff: float = 10.0
    """How long a job waits before its second counted restart in a row; twice as long each time; 0: no job waits."""
    longest_restart_backoff: float = 360.0
    """How long it waits at most."""
    node_failures: int = 3
    """After so many failures of a job's pods on a node the job avoids it."""
    dead_node_grace: float = 60.0
    """How long a node may be silent, and a pod stay beyond its own grace, until the pod is deleted without the node."""
    longest_grace: float = 3600.0
    """How long a pod that a worker deletes may take to end, whatever its template asks for."""
    most_writes: int = 1_000
    """API writes one reconcile may spend before it makes room for another key: so many that a large job goes on until
    its time is over. Each time it is looked at anew costs as much as dozens of its pods."""
    most_seconds: float = 1.0
    """Time one reconcile may begin new writes in. Others have threads of their own meanwhile."""
    parallel: int = 8
    """Pods being made or deleted at once by one process; its pool of connections must be larger."""
    cache_wait: float = 0.5
    """How long to wait for the pod cache to show what the coordinator has already seen."""
    name_retry: float = 0.2
    """When to look again while an older pod still holds the name of a new one."""
