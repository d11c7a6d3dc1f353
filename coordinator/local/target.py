"""The selection of the cluster that commands use, and its short name.

One rule: the first of these wins: --kubeconfig (or TORCHQ_KUBECONFIG, or the settings file), KUBECONFIG, --context, the
current local cluster, ~/.kube/config, the cluster in which this process runs as a pod. A local cluster that does not
run is never replaced by another one.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coordinator.errors import LocalError
from coordinator.local import current_cluster, stack_state, user_folders
from coordinator.local.stack_state import Files
from coordinator.settings import Resolved
from kube import client, errors
from kube.settings import ConnectionSettings

LOCAL = "local"
"""The name of the local cluster in the default data folder; any other one is `local:FOLDER`."""
IN_CLUSTER = "in-cluster"
UNKNOWN = "?"
LOCAL_SOURCE = "torchq local up"


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """A cluster that commands use."""

    kubeconfig: str = ""
    """The path of the kubeconfig; empty means the cluster in which this process runs as a pod."""
    source: str = "default"
    """What selected the cluster: a flag, a variable, a file or `torchq local up`."""
    implied: bool = False
    """Whether the connection needs the kubeconfig explicitly, since kubectl's rules would not find it."""

    @property
    def data(self) -> Path | None:
        """The data folder of a local cluster that `torchq local` runs; else None. Raises LocalError for the folder of
        another user."""
        folder = Path(self.kubeconfig).absolute().parent
        is_local = bool(self.kubeconfig) and Files(folder).layout.kubeconfig.name == Path(self.kubeconfig).name
        try:
            return folder if is_local and (self.implied or Files(folder).lock.is_file()) else None
        except PermissionError as error:
            raise LocalError(
                f"the files in {folder} cannot be read: a local cluster, with its jobs and their history, serves only "
                "the user who has started it"
            ) from error

    @property
    def runs(self) -> bool:
        """Whether this is a local cluster that runs. Raises LocalError if the state of the cluster cannot be
        determined.
        """
        return self.data is not None and stack_state.supervisor_pid(self.data) is not None

    def check(self) -> None:
        """Raise LocalError for a local cluster that does not run."""
        if self.data is not None and not self.runs:
            raise LocalError(
                f"the local cluster in {self.data} is not running: start it with `{command('up', self.data)}`, "
                "or name another cluster with --context NAME or --kubeconfig FILE"
            )


def find(resolved: Resolved, environ: Mapping[str, str], *, serves: bool = False) -> ClusterTarget:
    """Return the cluster of an invocation.

    A coordinator or worker (`serves`) ignores the local cluster that is current for the user who starts it. Raises
    LocalError if the note of the current cluster cannot be read.
    """
    settings = resolved.settings
    if settings.kubeconfig:
        return ClusterTarget(settings.kubeconfig, resolved.sources["kubeconfig"])
    if kubeconfig := environ.get("KUBECONFIG"):
        return ClusterTarget(kubeconfig, "KUBECONFIG")
    usual = _usual(environ)
    if settings.context:
        return ClusterTarget(usual or client.DEFAULT_KUBECONFIG, client.DEFAULT_KUBECONFIG)
    if not serves and (data := current_cluster.data_folder(environ)) is not None:
        return ClusterTarget(str(Files(data).layout.kubeconfig), LOCAL_SOURCE, implied=True)
    return without_local(environ)


def without_local(environ: Mapping[str, str]) -> ClusterTarget:
    """Return the cluster to use if the user names none and no local cluster is current."""
    if usual := _usual(environ):
        return ClusterTarget(usual, client.DEFAULT_KUBECONFIG)
    if client.IN_CLUSTER in environ:
        return ClusterTarget("", IN_CLUSTER)
    embedded = _default_embedded(environ)
    return ClusterTarget(str(embedded), "default", implied=True) if embedded and embedded.exists() else ClusterTarget()


def short_name(target: ClusterTarget, context: str, environ: Mapping[str, str]) -> str:
    """Return the short name of a cluster: `local`, `local:FOLDER`, the name of its context, or `in-cluster`."""
    if target.data is not None:
        embedded = _default_embedded(environ)
        return LOCAL if embedded and embedded.parent == target.data else f"{LOCAL}:{target.data}"
    if not target.kubeconfig:
        return IN_CLUSTER if target.source == IN_CLUSTER else UNKNOWN
    return context or context_of(target) or UNKNOWN


def context_of(target: ClusterTarget) -> str:
    """Return the current context of a kubeconfig; empty if it has none or the file cannot be used."""
    try:
        return client.context_name(ConnectionSettings(kubeconfig=target.kubeconfig))
    except errors.Misconfigured:
        return ""


def command(verb: str, data: Path) -> str:
    """Return the `torchq local` command for a data folder."""
    try:
        usual = user_folders.default_data() == data
    except LocalError:
        usual = False
    return f"torchq local {verb}" + ("" if usual else f" --data {shlex.quote(str(data))}")


def _usual(environ: Mapping[str, str]) -> str:
    """Return the path of kubectl's default kubeconfig; empty if it does not exist."""
    home = user_folders.home(environ)
    path = home / ".kube" / "config" if home else None
    return str(path) if path and path.exists() else ""


def _default_embedded(environ: Mapping[str, str]) -> Path | None:
    try:
        return Files(user_folders.default_data(environ)).layout.kubeconfig
    except LocalError:
        return None
