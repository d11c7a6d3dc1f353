"""Checks the options of `torchq local up` before anything is started.

One rule: a value that cannot work is refused with the option's name and the allowed values. The checks create nothing
but the data folder.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from coordinator.errors import LocalError, SettingsError
from coordinator.local import stack_state
from coordinator.local.stack_state import Files
from crds.resources import quantities
from embedded.apiserver.storage import disk
from embedded.node.resources import machine
from embedded.redis import server_program
from queues.errors import QueueError
from queues.redis import connection, fitness
from queues.redis import url as redis_url

MOST_CPUS = 1_000_000
LEAST_MEMORY = 16 * 2**20
MOST_GPUS = 1024
LEAST_FREE = 16 * 2**20
"""The bytes that must be free on the disk of the data folder."""
LONGEST_PATH = 1024
"""The most bytes of the data folder's path. The paths of pods' files are some hundred bytes longer, and the system's
limit is 4096."""
REDIS_SECONDS = 2.0
_FULL = (errno.ENOSPC, errno.EDQUOT)
_PROBE = bytes(64 * 1024)


def cpus(text: str) -> str:
    """Return the value of --cpus. Raises ValueError unless the value is a quantity of CPUs."""
    amount = quantities.parse("cpu", text)
    if not 0 < amount <= MOST_CPUS * 1000:
        raise ValueError(f"must be more than 0 and at most {MOST_CPUS}, as in 4 or 2500m, not {text}")
    return text


def memory(text: str) -> str:
    """Return the value of --memory. Raises ValueError unless the value is an amount of memory that a pod can run in."""
    amount = quantities.parse("memory", text)
    if amount < LEAST_MEMORY:
        raise ValueError(f"{text} is {amount} bytes: must be at least 16Mi; write a number with a unit, as in 64Gi")
    return text


def gpus(text: str) -> str:
    """Return the value of --gpus. Raises ValueError unless the value is a whole number."""
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) <= MOST_GPUS):
        raise ValueError(f"must be a whole number from 0 to {MOST_GPUS}, not {text}")
    return text


def beyond_machine(memory: str, gpus: str) -> Iterator[str]:
    """Return notes on memory and GPUs that the node will offer and this machine does not have. Such a value is allowed,
    because it is useful for experiments.
    """
    memory_bytes = machine.memory()
    if memory and quantities.parse("memory", memory) > memory_bytes:
        has = f"{memory_bytes / 2**30:.1f}Gi"
        yield f"--memory {memory} is more than this machine has ({has}): jobs may run out of memory"
    if gpus and int(gpus) > (count := len(machine.gpus(os.environ))):
        yield f"--gpus {gpus} is more than this machine has ({count}): jobs may get numbers of missing GPUs"


def redis(url: str, source: str) -> None:
    """Check the user's own Redis. Raises SettingsError for an unusable URL, LocalError if Redis does not answer or
    cannot hold the queues."""
    try:
        redis_url.check(url)
        client = connection.connect(url, client_name="torchq-probe", timeout=REDIS_SECONDS, retries=0)
    except QueueError as error:
        raise SettingsError(f"{source}: {error}") from error
    try:
        with connection.translate_errors(client):
            client.ping()
        problem = fitness.problem(client)
    except QueueError as error:
        raise LocalError(f"{source}: {error}") from error
    finally:
        client.close()
    if problem:
        raise LocalError(f"{source}: {problem}")


def port(number: int) -> None:
    """Raise LocalError if the API server cannot listen on the port. Clients would mistake another program for the API
    server."""
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # the server sets it, too, so old connections do not matter
        try:
            probe.bind(("127.0.0.1", number))
        except OSError as error:
            raise LocalError(
                f"the API server cannot use port 127.0.0.1:{number}: {error.strerror}; choose another with --port"
            ) from error


def is_free(number: int) -> bool:
    """Return whether the API server can listen on the port."""
    with contextlib.suppress(LocalError):
        port(number)
        return True
    return False


def folder(path: Path) -> None:
    """Create the data folder and check it.

    Raises LocalError if the folder does not support writes, locks or sockets, if a newer version wrote the folder, or
    if the folder is new and its disk is full.
    """
    database = Files(path).layout.database
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        raise _folder_error(path, "its path is not UTF-8") from None
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise _folder_error(path, f"its path is longer than {LONGEST_PATH} bytes")
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_write(path)
        if (free := shutil.disk_usage(path).free) < LEAST_FREE and not database.exists():
            raise _folder_error(
                path, f"its disk is full: {free >> 20}Mi are free, at least {LEAST_FREE >> 20}Mi are needed"
            )
    except OSError as error:
        if error.errno in _FULL and database.exists():
            return  # an earlier cluster may start on a full disk: deleting its jobs frees space
        raise _folder_error(path, error.strerror or str(error), error) from error
    _check_socket(path)
    try:
        disk.check(database)
    except disk.DiskFailed as error:
        raise LocalError(f"--data: {error}; choose another data folder, or the torchq that wrote it") from error


def copy(path: Path) -> None:
    """Raise LocalError for a copy of a running cluster's folder. The pods of both would have the same processes."""
    if pid := stack_state.original(path):
        raise LocalError(
            f"--data: {path} is a copy of the folder of a running cluster (process {pid}) and would take over its "
            "pods: stop that cluster first, or choose another folder"
        )


def _check_write(path: Path) -> None:
    """Write, lock and remove a probe file."""
    probe = path / f".probe-{secrets.token_hex(4)}"
    with contextlib.ExitStack() as stack:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        stack.callback(os.close, descriptor)
        stack.callback(probe.unlink)
        if os.write(descriptor, _PROBE) < len(_PROBE):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _folder_error(path, f"its file system has no locks ({error.strerror})") from error


def _check_socket(path: Path) -> None:
    """Check that Redis can listen on a socket in the folder, or in a shorter folder elsewhere if its path is too
    long."""
    try:
        folder = server_program.socket_path(Files(path).layout).parent
        probe = (folder if folder.is_dir() else path) / f".s{secrets.token_hex(2)}"
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(probe))
            probe.unlink()
    except server_program.RedisFailed as error:
        raise LocalError(str(error)) from error
    except OSError as error:
        raise _folder_error(path, f"its file system has no sockets ({error.strerror or error})") from error


def _folder_error(path: Path, why: str, error: OSError | None = None) -> LocalError:
    where = f" ({error.filename})" if error and error.filename and str(error.filename) != str(path) else ""
    return LocalError(f"--data {path} cannot be used: {why}{where}; choose another folder with --data")
