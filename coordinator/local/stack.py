"""All of torchq on one machine (the stack): API server, Redis, node, coordinator and workers under one supervisor.

One rule: this module only connects the parts. Each part is a process of its own and uses the others over HTTP and
Redis, as on a real cluster.
"""

import contextlib
import logging
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coordinator import release
from coordinator.cache import own_installation
from coordinator.errors import LocalError
from coordinator.local import option_checks, remaining_pods, stack_shutdown, stack_state, target
from coordinator.local.stack_shutdown import CLUSTER, DATA, NODE, NODE_NAME, Say
from coordinator.local.stack_start import START_SECONDS, Report, StackStart, StartInterrupted, ignore_report
from coordinator.local.stack_state import Files
from coordinator.local.supervisor import WATCH_SECONDS, Command, Supervisor
from coordinator.local.torchq_processes import TorchqProcesses, noted_port
from coordinator.looks import looks
from coordinator.rbac.permissions import LEASE
from coordinator.settings import Settings
from crds import generate
from crds.api_resources import LEASES, MODEL_VERSIONS, SCALE_INS, SCALE_OUTS, TENANT_QUEUES, TORCHJOBS, Resource
from embedded import volcano_crds
from embedded.node import registration
from embedded.node.resources import machine
from embedded.redis import server_program
from embedded.redis.persistence import Persistence
from embedded.redis.server_program import RedisCommand
from kube import client, errors
from kube.api import Cluster
from kube.settings import ConnectionSettings
from kube.stop import PatientStop
from queues import installation
from queues.errors import QueueError
from queues.redis import connection, fitness

log = logging.getLogger(__name__)

PROGRAMS = {"apiserver": "embedded.apiserver.api_server", NODE_NAME: "embedded.node.node"}
"""The programs of the embedded cluster, by the names of their processes."""
OWNER_SECONDS = 5.0
"""The longest wait for an answer of Redis about whose queues it has."""
PORT_SECONDS = 5.0
"""The longest time for which the API server of a killed stack may keep its port."""
LEAVE = signal.SIGUSR1
"""The signal that makes the supervisor end and leave the pods running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """The options of `torchq local up`."""

    data: Path
    cpus: str = ""
    memory: str = ""
    gpus: str = ""
    log_size: str = ""
    """The largest output that is kept of each container."""
    redis: str = ""
    """The URL of a running Redis; if empty, the stack starts its own."""
    redis_file: str = ""
    """The file from which that URL was read, if any. Coordinator and workers read it again when it has changed."""
    workers: int = 2
    port: int = 0
    """The port of the API server; 0 means the port of the last start, else any free port."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Settings for coordinator and workers."""


def run(
    options: StackOptions,
    report: Report = ignore_report,
    ready: Callable[[], None] = lambda: None,
    say: Say = lambda _: None,
) -> int:
    """Start all parts, call `ready`, keep them alive until a stop signal, then end them. Returns the exit code.

    `report` is called with the name of each part when its start begins. Raises LocalError if a part does not start; no
    part runs then. `say` prints messages for people.

    SIGTERM and SIGINT also end the pods, each with its whole grace period. `LEAVE` leaves the pods running. `HURRY`
    kills them.
    """
    files = Files(options.data)
    options.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    stop = PatientStop(LEAVE)
    stop.listen()
    with stack_state.hold_lock(files):
        files.ready.unlink(missing_ok=True)
        remaining_pods.clear(options.data)
        supervisor = Supervisor()
        try:
            with contextlib.suppress(StartInterrupted):
                _start(options, StackStart(files, supervisor, stop, report))
                stack_state.note_ready(files, supervisor.pids(), supervisor.told.urls())
                ready()
                _watch(files, supervisor, stop)
        except LocalError:
            stop.leaves = True  # a cluster that did not start must not end pods of an earlier one
            raise
        finally:
            files.ready.unlink(missing_ok=True)
            killed = stack_shutdown.end(supervisor, stop, options.data, say, hurry_command(options.data))
    return 1 if killed else 0


def end_pods(data: Path, *, now: bool, say: Say) -> int:
    """End the pods that a stack has left running, with their whole grace period or, if `now`, at once. Returns the exit
    code."""
    files = Files(data)
    stop = PatientStop(LEAVE)
    stop.listen()
    stop.hurried = now
    with stack_state.hold_lock(files):
        supervisor = Supervisor()
        try:
            _start_api_server(StackStart(files, supervisor, lambda: False))
            supervisor.start(stack_shutdown.shutting_down(_node(files, [])))
            killed = stack_shutdown.end_pods(supervisor, stop, data, say, hurry_command(data))
        finally:
            supervisor.stop()
    return 1 if killed else 0


def hurry_command(data: Path) -> str:
    """Return the command that kills pods that are ending."""
    return f"{target.command('down', data)} --now"


def check_log_size(text: str) -> str:
    """Return the value of `--container-log-max-size`. Raises ValueError if the node does not accept the value."""
    machine.log_bytes(text)
    return text


def install(cluster: Cluster) -> None:
    """Create or update the CustomResourceDefinitions and wait until they are served."""
    for body in generate.load():
        volcano_crds.define(cluster, body)
    for resource in (TORCHJOBS, TENANT_QUEUES, SCALE_OUTS, SCALE_INS, MODEL_VERSIONS):
        _until(lambda resource=resource: _listable(cluster, resource), f"{resource.plural} to be served")  # type: ignore[misc]


def redis_server() -> str:
    """Return the path of the Redis server that a stack starts. Raises LocalError if the program is not installed."""
    try:
        return server_program.server()
    except server_program.RedisFailed as error:
        raise LocalError(str(error)) from error


def _start(options: StackOptions, start: StackStart) -> None:
    """Start one part after the other, each once the parts that it needs answer."""
    files, supervisor = start.files, start.supervisor
    plan = _plan_redis(options, files)
    _start_api_server(start, options.port)
    try:
        cluster = client.connect(ConnectionSettings(kubeconfig=str(files.layout.kubeconfig)))
        install(cluster)
        volcano_crds.install(
            cluster
        )  # workers ask once which kinds are served, and the node may be registered from the last start
        url = _start_redis(options, plan, files, supervisor)
        start.wait("Redis", "redis", lambda: connection.is_reachable(url))
        claim_redis(cluster, url, _lease_namespace(options), is_own=plan is not None)
        before = node_renew_times(cluster)
        supervisor.start(_node(files, _capacity(options)))
        # The Node object of the last start may offer more than this machine has now, and a coordinator would admit
        # jobs to these resources.
        start.wait("the node", NODE_NAME, lambda: node_renew_times(cluster) not in ({}, before))
        processes = TorchqProcesses(files, options.environment, url, options.redis_file)
        for command in processes.coordinator_and_workers(options.workers):
            supervisor.start(command)
        start.wait(
            "the coordinator and the workers",
            "coordinator",
            lambda: supervisor.told.have_told() and _leads(cluster, options, supervisor.pids().get("coordinator", 0)),
        )
        # Nobody waits for the recorder, and a start succeeds without it.
        supervisor.start(processes.recorder())
    except errors.ClusterError as error:
        raise start.error("the API server", "apiserver", str(error)) from error
    except QueueError as error:
        raise start.error("Redis", "redis", str(error)) from error


def _start_api_server(start: StackStart, requested_port: int = 0) -> None:
    files, layout = start.files, start.files.layout
    port = _free_port(start, requested_port)
    start.supervisor.start(_module(files, "apiserver", ["--data", str(layout.root), "--port", str(port)], CLUSTER))

    def accepts() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0 and layout.kubeconfig.exists()

    start.wait("the API server", "apiserver", accepts)


def _free_port(start: StackStart, requested: int) -> int:
    """Return the API server's port: the requested port, or, if the requested port is 0, the port of the last start.

    Waits for the API server of a killed stack to free the port. Raises LocalError if another program uses the port.
    """
    port = requested or noted_port(start.files.port)
    with contextlib.suppress(LocalError):
        start.wait("the API server", "apiserver", lambda: option_checks.is_free(port), seconds=PORT_SECONDS)
    option_checks.port(port)
    return port


def _node(files: Files, capacity: list[str]) -> Command:
    where = ["--data", str(files.layout.root), "--kubeconfig", str(files.layout.kubeconfig)]
    return _module(files, NODE_NAME, [*where, "--stop-pods", *capacity], NODE)


def node_renew_times(cluster: Cluster) -> dict[str, str]:
    """Return when each node renewed its Lease. A node renews its Lease only once its Node object is up to date."""
    leases = cluster.list(LEASES, registration.LEASE_NAMESPACE).items
    return {lease["metadata"]["name"]: str((lease.get("spec") or {}).get("renewTime")) for lease in leases}


def _lease_namespace(options: StackOptions) -> str:
    return options.environment.get("TORCHQ_LEASE_NAMESPACE", Settings.model_fields["lease_namespace"].default)


def _leads(cluster: Cluster, options: StackOptions, pid: int) -> bool:
    """Return whether this stack's coordinator holds the Lease. The Lease of a killed coordinator must expire first."""
    try:
        lease = cluster.get(LEASES, LEASE, _lease_namespace(options))
    except (errors.NotFound, errors.Unreachable):
        return False
    return f"-{pid}-" in str((lease.get("spec") or {}).get("holderIdentity"))


def _watch(files: Files, supervisor: Supervisor, stop: PatientStop) -> None:
    """Keep all parts alive and the note of their processes up to date."""
    noted: tuple[dict[str, int], dict[str, str]] = {}, {}
    persistence = None
    if files.redis_url.exists():
        persistence = Persistence(files.redis_url.read_text(), files.layout.redis)
    while not stop():
        supervisor.step()
        if persistence is not None:
            persistence.step(time.monotonic())
        current = supervisor.pids(), supervisor.told.urls()
        if current != noted:
            with contextlib.suppress(OSError):  # the disk is full; the next turn tries again
                stack_state.note_ready(files, *current)
                noted = current
        stop.pause(WATCH_SECONDS)


def _start_redis(options: StackOptions, plan: RedisCommand | None, files: Files, supervisor: Supervisor) -> str:
    """Start the planned Redis, if one is planned, and return the URL of the Redis to use."""
    files.redis_url.unlink(missing_ok=True)
    if plan is None:
        return options.redis
    files.redis_url.write_text(plan.url)
    supervisor.start(
        Command(
            name="redis",
            arguments=plan.command,
            output=files.layout.logs("redis"),
            stage=DATA,
            foreign=True,
            after_end=lambda status: _keep_redis_startable(files, status),
        )
    )
    return plan.url


def _plan_redis(options: StackOptions, files: Files) -> RedisCommand | None:
    """Plan the stack's own Redis; None if the stack uses another Redis. Raises LocalError if Redis cannot run."""
    if options.redis:
        return None
    try:
        return server_program.prepare(files.layout)
    except server_program.RedisFailed as error:
        raise LocalError(str(error)) from error


def _keep_redis_startable(files: Files, status: int) -> None:
    """Move aside the append-only file that a Redis server could not read."""
    moved = server_program.move_unreadable_files(files.layout, status)
    if moved:
        log.warning(
            "Redis could not read its append-only file and starts with an empty one; the queues are read from the "
            "cluster again. The old file is in %s, the reason in %s",
            moved,
            files.layout.logs("redis"),
        )


def _module(files: Files, name: str, arguments: list[str], stage: int) -> Command:
    """Return the command of a process of the embedded cluster."""
    command = [*release.MODULE, PROGRAMS[name], *arguments]
    return Command(name=name, arguments=command, output=files.layout.logs(name), stage=stage, foreign=True)


def _capacity(options: StackOptions) -> list[str]:
    options_by_flag = {
        "--cpus": options.cpus,
        "--memory": options.memory,
        "--gpus": options.gpus,
        "--container-log-max-size": options.log_size,
    }
    return [text for flag, value in options_by_flag.items() if value for text in (flag, value)]


def _listable(cluster: Cluster, resource: Resource) -> bool:
    try:
        cluster.list(resource)
    except errors.NotFound:
        return False
    return True


def _until(condition: Callable[[], bool], what: str) -> None:
    if not any(condition() for _ in looks(START_SECONDS, 0.02)):
        raise LocalError(
            f"the cluster did not start: waited {START_SECONDS:.0f} s in vain for {what}; see the logs folder"
        )


def claim_redis(cluster: Cluster, url: str, lease_namespace: str, *, is_own: bool) -> None:
    """Make the cluster the owner of its own server (`is_own`). Raise LocalError for another server whose queues belong
    to another installation; its coordinator would wait for ever."""
    own = own_installation.read(cluster, lease_namespace)
    client = connection.connect(url, client_name="torchq-local", timeout=OWNER_SECONDS)
    try:
        owner = fitness.read_ownership(client).owner
        if installation.foreign(owner, own) and not is_own:
            raise LocalError(
                f"Redis at {connection.address(client)} belongs to another installation ({installation.name(owner)}): "
                "name another database with --redis, or delete the keys torchq:* in this one"
            )
        if installation.foreign(owner, own):
            fitness.adopt(client, own)
    finally:
        client.close()
