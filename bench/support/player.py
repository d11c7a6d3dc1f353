"""An object that plays the kubelets of a cluster without nodes: a watch of all pods, and the statuses that follow from
it.

One rule: a status is written when it is due, and again if the server did not accept the write. A late write is logged.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from bench.support.later import Later
from crds import labels
from crds.api_resources import PODS
from kube import client, errors
from kube.api import Manifest
from kube.informer import Informer
from kube.settings import ConnectionSettings

_RETRY_SECONDS = 0.5
_LATE_SECONDS = 1.0


class Named(Protocol):
    """A player keeps its values for a pod under the name of the pod."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...


Pod = TypeVar("Pod", bound=Named)


def play(
    kubeconfig: str,
    threads: int,
    trim: Callable[[Manifest], Pod],
    wait: Callable[[Pod | None, Pod], float | None],
    status: Callable[[Pod], dict[str, Any]],
    wrote: Callable[[Pod], None] = lambda _: None,
) -> None:
    """Write the `status` of each pod until the process is killed.

    `wait` gets a pod before and after a change, and returns the seconds until the status is due; None if the status
    stays. `wrote` is called with the pod as it was before its status was written.
    """
    settings = ConnectionSettings(kubeconfig=kubeconfig, user_agent="bench-player", pool_connections=threads + 4)
    cluster = client.connect(settings)
    with Later(threads) as later:

        def write(pod: Pod, due: float) -> None:
            if (late := time.monotonic() - due) > _LATE_SECONDS:
                print(f"WARNING a pod's status is {late:.1f} s late", flush=True)
            try:
                cluster.patch(PODS, pod.name, {"status": status(pod)}, pod.namespace, subresource="status")
                wrote(pod)
            except (errors.NotFound, errors.Invalid):
                return  # the pod was deleted, or it has ended already
            except errors.ClusterError as error:
                print(f"WARNING {error}", flush=True)
                later.after(_RETRY_SECONDS, lambda: write(pod, time.monotonic()))

        def on_change(before: Pod | None, after: Pod | None) -> None:
            if after is not None and (seconds := wait(before, after)) is not None:
                due = time.monotonic() + seconds
                later.at(due, lambda: write(after, due))

        Informer(cluster, PODS, trim=trim, label_selector=labels.JOB_UID, on_change=on_change).start()
        print("ready", flush=True)
        threading.Event().wait()
