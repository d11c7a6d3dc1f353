"""Messages of `torchq local` about the cluster that commands use, before and after the current cluster changes.

One rule: this module only reads. The lines are for people.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path

from coordinator.errors import LocalError
from coordinator.local import current_cluster, target
from coordinator.local.target import ClusterTarget
from coordinator.settings import Resolved


def after_up(resolved: Resolved, environ: Mapping[str, str], data: Path) -> list[str]:
    """Describe which cluster commands use now that the cluster in `data` runs, and how to reach the other cluster."""
    target_now = target.find(resolved, environ)
    if target_now.data != data:
        hint = f"for this cluster: torchq --kubeconfig {_kubeconfig(data)} COMMAND"
        cluster_name = target.short_name(target_now, resolved.settings.context, environ)
        if cluster_name == target.UNKNOWN:
            return [f"torchq's commands go to no cluster; {hint}"]
        name_source = resolved.sources["context"] if resolved.settings.context else target_now.source
        reason = f"{name_source} names it" if target_now.source != target.LOCAL_SOURCE else "it was made current before"
        return [f"torchq's commands still go to {cluster_name} ({reason}); {hint}"]
    cluster_name = target.short_name(target_now, "", environ)
    if target_now.source != target.LOCAL_SOURCE:
        why = "no other cluster is configured" if target_now.source == "default" else f"{target_now.source} names it"
        return [f"torchq's commands go to it ({cluster_name}): {why}"]
    return [f"torchq's commands now go to it ({cluster_name}){_way_out(environ)}"]


def after_down(resolved: Resolved, environ: Mapping[str, str], data: Path) -> str:
    """Describe which cluster commands use now that the current cluster, in `data`, is stopped."""
    target_now = target.find(resolved, environ)
    if target_now.source in ("default", target.LOCAL_SOURCE) and not target_now.runs:
        # Commands find a cluster that is down, for its history, in the default folder alone.
        history = f"; its history: torchq --kubeconfig {_kubeconfig(data)} history" if target_now.data != data else ""
        return f"no other cluster is current: `{target.command('up', data)}` starts this one again{history}"
    cluster_name = target.short_name(target_now, resolved.settings.context, environ)
    if target_now.source == target.LOCAL_SOURCE:
        return f"torchq's commands go to {cluster_name} again"
    if target_now == target.without_local(environ):
        return f"torchq's commands go to {cluster_name} again ({target_now.source})"
    return f"torchq's commands go to {cluster_name}: {target_now.source} names it"


def not_here(environ: Mapping[str, str], data: Path) -> list[str]:
    """Describe where the current cluster is, if it is in another folder."""
    try:
        folder = current_cluster.data_folder(environ)
    except LocalError:
        return []
    if folder is None or folder == data:
        return []
    return [f"the current cluster is in {folder}: {target.command('down', folder)}"]


def _kubeconfig(data: Path) -> str:
    return shlex.quote(str(data / "kubeconfig"))


def _way_out(environ: Mapping[str, str]) -> str:
    """Describe how to reach the cluster that commands would use without the local cluster."""
    other: ClusterTarget = target.without_local(environ)
    if other.source == target.IN_CLUSTER:
        return "; `torchq local down` returns them to the cluster that this pod runs in"
    context = target.context_of(other) if other.kubeconfig and other.data is None else ""
    return f"; for {context} of {other.source}: torchq --context {shlex.quote(context)} COMMAND" if context else ""
