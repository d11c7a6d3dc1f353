"""What `torchq local` says about the cluster that commands go to, before and after a change of it.

One rule: it only looks; the lines are for people.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path

from coordinator.errors import LocalError
from coordinator.local import current_cluster, target
from coordinator.local.target import Target
from coordinator.settings import Resolved


def after_up(resolved: Resolved, environ: Mapping[str, str], data: Path) -> list[str]:
    """Which cluster the commands go to now that the one in `data` runs, and how to reach the other."""
    found = target.find(resolved, environ)
    if found.data != data:
        own = f"for this cluster: torchq --kubeconfig {shlex.quote(str(data / 'kubeconfig'))} COMMAND"
        word = target.word(found, resolved.settings.context, environ)
        if word == target.UNKNOWN:
            return [f"torchq's commands go to no cluster; {own}"]
        named = resolved.sources["context"] if resolved.settings.context else found.source
        reason = f"{named} names it" if found.source != target.LOCAL_SOURCE else "it was made current before"
        return [f"torchq's commands still go to {word} ({reason}); {own}"]
    word = target.word(found, "", environ)
    if found.source != target.LOCAL_SOURCE:
        why = "no other cluster is configured" if found.source == "default" else f"{found.source} names it"
        return [f"torchq's commands go to it ({word}): {why}"]
    return [f"torchq's commands now go to it ({word}){_way_out(environ)}"]


def after_down(resolved: Resolved, environ: Mapping[str, str]) -> str:
    """Which cluster the commands go to now that the current one was stopped."""
    found = target.find(resolved, environ)
    if found.source in ("default", target.LOCAL_SOURCE) and not found.runs:
        return "no other cluster is current: `torchq local up` starts this one again"
    word = target.word(found, resolved.settings.context, environ)
    if found.source == target.LOCAL_SOURCE:
        return f"torchq's commands go to {word} again"
    if found == target.elsewhere(environ):
        return f"torchq's commands go to {word} again ({found.source})"
    return f"torchq's commands go to {word}: {found.source} names it"


def not_here(environ: Mapping[str, str], data: Path) -> list[str]:
    """Where the current cluster is, if it is in another folder."""
    try:
        found = current_cluster.data(environ)
    except LocalError:
        return []
    if found is None or found == data:
        return []
    return [f"the current cluster is in {found}: {target.command('down', found)}"]


def _way_out(environ: Mapping[str, str]) -> str:
    """How to reach the cluster that the commands would go to without the local one."""
    other: Target = target.elsewhere(environ)
    if other.source == target.IN_CLUSTER:
        return "; `torchq local down` gives them back to the cluster that this pod runs in"
    context = target.context_of(other) if other.kubeconfig and other.data is None else ""
    return f"; for {context} of {other.source}: torchq --context {shlex.quote(context)} COMMAND" if context else ""
