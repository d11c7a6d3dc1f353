"""Every setting of every torchq process, in one frozen object.

One rule: settings are validated once at the start (flag over environment over file over default) and then handed down.
No other module reads the environment for settings.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

import pydantic
from pydantic import Field

from coordinator import history_settings, release
from coordinator.dashboard_settings import DashboardSettings
from coordinator.errors import SettingsError
from coordinator.gang_settings import GangSettings
from coordinator.history_settings import HistorySettings
from coordinator.lease_settings import LeaseSettings
from coordinator.node_settings import NodeRules, Seconds
from coordinator.port_settings import PortSettings
from crds.resources import quantities, resource_names
from queues import rules
from queues.errors import BadAddress
from queues.redis import location, url
from queues.redis.location import Location
from queues.rules import PickRules

PREFIX = "TORCHQ_"
RETIRED = frozenset({"pool_bypasses", "queue_bypasses"})
"""The settings of earlier versions that have no effect any more. A coordinator that is given one says so."""
REDIS_URL_NOTE = "redis-url"
"""The file beside an embedded cluster's kubeconfig that has the URL of its Redis. The URL contains no secret."""
OF_COMMANDS = frozenset(
    {
        *("kubeconfig", "context", "namespace", "redis_url", "redis_url_file", "coordinator", "service"),
        *("recorder_service", "lease_namespace", "api_timeout", "api_qps", "api_burst", "log_format", "log_level"),
    }
)
"""The settings that each process has for itself, commands too. All others are those of the installation."""
PASSWORD_ON_COMMAND_LINE = (
    "--redis: every user of the machine can read a password on a command line; "
    "set TORCHQ_REDIS_URL, or put the URL into a file and name it with --redis-url-file"
)


class Settings(DashboardSettings, GangSettings, HistorySettings, LeaseSettings, NodeRules, PortSettings):
    """The settings of an admin. Times are seconds."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", defer_build=False)

    kubeconfig: str = Field(
        default="",
        description="kubeconfig file; empty: $KUBECONFIG, the current local cluster, ~/.kube/config, in-cluster",
    )
    context: str = Field(default="", description="context of the kubeconfig; empty: its current one")
    namespace: str = Field(default="", description="namespace of the commands; empty: the context's, else default")
    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0",
        description="redis://, rediss://, unix:// or redis+sentinel:// URL; one database per installation",
    )
    redis_url_file: str = Field(
        default="", description="file that contains this URL, such as a mounted secret; used if redis_url is not set"
    )
    cost: str = Field(
        default=rules.DOMINANT,
        description="what weights divide: dominant (the largest part of the pool a job takes), jobs, or a resource",
    )
    pool_patience: float = Field(
        default=rules.LONGEST_PATIENCE,
        gt=0,
        le=31_536_000,
        description="for how many seconds at most others pass a job that lacks room, if half of what runs is older",
    )
    pool: str = Field(
        default="nodes",
        description="what queues compete for: nodes (their allocatable), none, or amounts: cpu=64,nvidia.com/gpu=8",
    )
    implicit_queues: bool = Field(
        default=False,
        description="whether jobs may use the queue that has the name of their namespace, and `default`, which all "
        "share, without TenantQueues for them (each then has weight 1)",
    )
    master_address: Literal["service", "loopback"] = Field(
        default="service",
        description="MASTER_ADDR: the headless service's name, or 127.0.0.1 where all pods share one machine",
    )
    port_first: int = Field(
        default=20_000,
        ge=1024,
        le=65_535,
        description="first port held for jobs whose master listens at its node: hostNetwork, or loopback addresses",
    )
    port_last: int = Field(
        default=29_999, ge=1024, le=65_535, description="last such port; keep the range outside the ephemeral ports"
    )
    pods: Literal["make", "none"] = Field(
        default="make",
        description="what workers do about an admitted job: make its pods, or none, if another program watches "
        "admissions, runs the jobs and writes their end (as benchmarks of the queues do, with admission_timeout 0)",
    )
    processes: int = Field(default=2, ge=1, le=256, description="worker processes of `torchq worker`")
    threads: int = Field(default=16, ge=1, le=256, description="reconciles at the same time in one worker process")
    batch: int = Field(
        default=512, ge=1, le=4096, description="most picks in one commit; Redis serves no other client meanwhile"
    )
    heads: int = Field(default=128, ge=2, le=4096, description="most waiting jobs per queue that a snapshot reads")
    dispatch_seconds: Seconds = Field(default=0.01, description="pause between dispatches when nothing is ready")
    settle_seconds: Seconds = Field(
        default=0.25,
        description="changes of queues and nodes take effect together once this time has passed without one",
    )
    queued_after: Seconds = Field(
        default=2.0,
        description="a job that waits for less than this never gets the status Queued: one API write saved",
    )
    admission_timeout: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=600.0, description="an admitted job that does not run by then is sent back to its queue; 0: never"
    )
    admission_backoff: Seconds = Field(
        default=60.0,
        description="how long such a job waits in its queue first; twice as long each time, at most an hour",
    )
    admission_tries: int = Field(
        default=5, ge=1, le=1_000, description="after this many in a row, the job is parked until its owner resumes it"
    )
    refused_after: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=20.0,
        description="a gang that its scheduler has not bound for so long gives its room back while another job waits "
        "for it; 0: never, as where a cluster autoscaler brings nodes more slowly",
    )
    autoscale: Literal["off", "on"] = Field(
        default="on",
        description="whether elastic jobs with `autoscale: Idle` get idle room and give it back; off stops it at once, "
        "and jobs keep their sizes",
    )
    idle_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=30.0, description="how long room must have been idle before such a job grows into it"
    )
    idle_grace: Seconds = Field(
        default=120.0,
        description="how long workers of idle growth may take to save and end once others need their room; a job whose "
        "checkpointSeconds and longest grace exceed it does not grow into idle room",
    )
    in_place: Literal["auto", "recreate", "local", "kruise", "kubernetes"] = Field(
        default="auto",
        description="how containers of healthy pods are restarted with their job; auto: kubernetes (1.36, with a "
        "restart agent in each pod) where all nodes can, else kruise if its ContainerRecreateRequests are served when "
        "a worker starts, else recreate (new pods); local: the embedded node",
    )
    in_place_timeout: Seconds = Field(
        default=60.0, description="a restart in place that takes longer has failed, and the pod is replaced"
    )
    most_disruptions: int = Field(
        default=100,
        ge=0,
        le=1_000_000,
        description="how many failures a job survives that it has not caused (evictions, lost nodes)",
    )
    restart_backoff: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=10.0,
        description="how long a job waits before its second restart in a row after a failure that it has caused; twice "
        "as long each time, until it has run for 10 minutes; 0: never",
    )
    longest_restart_backoff: Seconds = Field(default=360.0, description="longest wait before such a restart")
    longest_grace: Seconds = Field(
        default=600.0,
        description="how long a pod that a worker deletes may take to end, whatever its terminationGracePeriodSeconds; "
        "pods of a job that its owner deletes keep theirs until their queue is drained",
    )
    cancelled_ttl_seconds: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        default=86_400,
        description="how long after its end a cancelled job is deleted that has no ttlSecondsAfterFinished",
    )
    parallel_writes: int = Field(
        default=8,
        ge=1,
        le=256,
        description="pods that one worker process creates or deletes at the same time; it patches four times as many",
    )
    most_writes: int = Field(
        default=1_000,
        ge=1,
        le=10_000,
        description="API writes of one reconcile before the worker turns to another job; so does it after one second. "
        "Pods that are asked to restart or to start are asked for up to ten seconds",
    )
    reason_after: Seconds = Field(
        default=10.0, description="if the first job of a queue waits longer than this, its status says why"
    )
    resync_seconds: Seconds = Field(
        default=60.0,
        description="how often every unfinished job is checked without an event; this repairs what a crash left",
    )
    running_lease_seconds: Seconds = Field(default=15.0, description="a worker silent for this long loses its keys")
    drain_seconds: Seconds = Field(
        default=20.0,
        description="how long a stopping process waits for its running work; "
        "terminationGracePeriodSeconds of its pod must be 8 s longer",
    )
    code_store: str = Field(
        default="",
        description="where `torchq run` keeps the code of jobs: empty for ConfigMaps (up to 4 MiB packed), or "
        "file:///FOLDER, a folder that this machine and every node see at the same path",
    )
    coordinator: str = Field(
        default="",
        description="URL of the coordinator that commands ask about the queues; empty: find it through the cluster",
    )
    api_timeout: Seconds = Field(default=10.0, description="longest wait for one response of the API server")
    api_qps: float = Field(
        default=0.0, ge=0, description="requests per second of one process to the API server; 0: no limit"
    )
    api_burst: int = Field(
        default=100, ge=1, le=100_000, description="how many requests may be sent at once before api_qps limits them"
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="text: lines for people; json: one JSON object per line, for programs"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="what goes to the log")

    @cached_property
    def redis(self) -> Location:
        """The place of Redis, which all clients of the process share."""
        return Location(self.redis_url, self.redis_url_file)

    @property
    def rules(self) -> PickRules:
        """The rules of picking."""
        return PickRules(cost=self.cost, longest_patience=self.pool_patience)

    @pydantic.model_validator(mode="after")
    def _ranges(self) -> "Settings":
        if self.port_last < self.port_first:
            raise ValueError("port_last: must not be below port_first")
        if self.cost != rules.DOMINANT and not resource_names.is_limit(self.cost):
            raise ValueError(f"cost: {resource_names.unknown(self.cost)}; else it is {rules.DOMINANT} or jobs")
        parse_pool(self.pool)
        parse_code_store(self.code_store)
        return self


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings and, for each of them, the source of its value."""

    settings: Settings
    sources: Mapping[str, str]
    retired: Mapping[str, str]
    """The settings of earlier versions that were given and count no more, each with its source."""


def resolve(flags: Mapping[str, Any], environ: Mapping[str, str], file: Path | None) -> Resolved:
    """Merge all sources. Raises SettingsError if a value is wrong, with the flag, the variable or the line of the
    file."""
    values: dict[str, Any] = {}
    sources = dict.fromkeys(Settings.model_fields, "default")
    layers: list[tuple[str, Mapping[str, Any]]] = [
        (str(file), _read_file(file) if file else {}),
        ("environment", _from_environment(environ)),
        ("flag", {name: value for name, value in flags.items() if value is not None}),
    ]
    retired: dict[str, str] = {}
    for source, layer in layers:
        for name, value in layer.items():
            if name in RETIRED:
                retired[name] = _origin(source, name)
                continue
            values[name] = value
            sources[name] = _origin(source, name)
        values |= _redis_url(layer, sources)
    if url.has_password(str(flags.get("redis_url") or "")):
        raise SettingsError(PASSWORD_ON_COMMAND_LINE)
    try:
        settings = Settings.model_validate(values)
    except pydantic.ValidationError as error:
        raise SettingsError(_first_problem(error, sources)) from error
    return Resolved(settings, sources, retired)


def _redis_url(layer: Mapping[str, Any], sources: dict[str, str]) -> dict[str, str]:
    """Return the decision of a layer about the Redis URL. A URL that is set directly takes the place of any file of
    this layer and of earlier layers; a file takes the place of a URL of an earlier layer.
    """
    if layer.get("redis_url"):
        return {"redis_url_file": ""}
    if not layer.get("redis_url_file"):
        return {}
    sources["redis_url"] = sources["redis_url_file"]
    try:
        return {"redis_url": location.read(str(layer["redis_url_file"]))}
    except BadAddress:
        return {"redis_url": ""}  # the first use of Redis reports it, and processes wait for the file


def describe(settings: Settings) -> dict[str, Any]:
    """Return the version of torchq and all settings, as they may be shown."""
    values = {name: mask(name, getattr(settings, name)) for name in Settings.model_fields}
    return {"version": release.version(), "settings": values}


def mask(name: str, value: object) -> str:
    """Return a setting as it may be shown: a URL without its password."""
    shown = {"redis_url": url.redact, "history_url": history_settings.redact}.get(name, str)
    return shown(str(value))


def parse_pool(text: str) -> dict[str, int] | Literal["nodes"] | None:
    """Parse the setting `pool`: return "nodes", None for `none`, or the amounts in a text such as `cpu=4,memory=8Gi`.

    Raises ValueError, which names the part of the text that is wrong.
    """
    match text:
        case "nodes":
            return "nodes"
        case "none":
            return None
    amounts = {}
    for part in text.split(","):
        name, equals, quantity = part.strip().partition("=")
        if not equals:
            raise ValueError(f"pool: {part!r} is not nodes, none or NAME=QUANTITY")
        if not resource_names.is_limit(name):
            raise ValueError(f"pool: {resource_names.unknown(name)}")
        canonical = resource_names.canonical(name)
        try:
            amounts[canonical] = quantities.parse(canonical, quantity)
        except ValueError as error:
            raise ValueError(f"pool: {name}: {error}") from error
        if resource_names.is_divided(name, quantity):
            raise ValueError(f"pool: {name}: {quantity!r} {resource_names.DIVIDED}")
    return amounts


def parse_code_store(text: str) -> Path | None:
    """Parse the setting `code_store`: return the folder, or None for ConfigMaps. Raises ValueError for other texts."""
    if not text:
        return None
    parts = urlsplit(text)
    folder = Path(unquote(parts.path))
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not folder.is_absolute() or not folder.name:
        raise ValueError(f"code_store: {text!r} is neither empty nor a folder as in file:///shared/code")
    return folder


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in the environment. Unknown variables are ignored: they may be for a newer torchq."""
    names = {PREFIX + name.upper(): name for name in (*Settings.model_fields, *RETIRED)}
    return {names[variable]: value for variable, value in environ.items() if variable in names}


def _read_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except FileNotFoundError as error:
        raise SettingsError(f"settings file {file}: no such file") from error
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"settings file {file}: {error}") from error


def _origin(source: str, name: str) -> str:
    match source:
        case "environment":
            return PREFIX + name.upper()
        case "flag":
            return "--" + name.replace("_", "-")
    return source


def _unknown_setting() -> str:
    return (
        f"torchq {release.version()} has no setting of this name: correct or remove it (`torchq config` lists all), or "
        "run the version that it is meant for"
    )


def _first_problem(error: pydantic.ValidationError, sources: Mapping[str, str]) -> str:
    problem = error.errors()[0]
    name = str(problem["loc"][0]) if problem["loc"] else ""
    is_unknown = problem["type"] == "extra_forbidden"
    text = _unknown_setting() if is_unknown else problem["msg"].removeprefix("Value error, ")
    source = sources.get(name, "")
    return f"setting {name} ({source}): {text}" if name else f"settings: {text}"
