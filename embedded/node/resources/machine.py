"""The resources that this machine offers to pods.

One rule: the resources that the process may use are counted, not the resources of the machine. CPU affinity and the
limits of the process's control groups apply.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from crds.resources import quantities

GPU = "nvidia.com/gpu"
"""The resource name of an NVIDIA GPU."""
MOST_PODS = 1000
"""The largest number of pods that the node runs at once."""
_LEAST_LOG_BYTES = 1024 * 1024
_CGROUPS = Path("/sys/fs/cgroup")
_GPU_QUERY = ("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Machine:
    """The resources that all pods together may use."""

    cpu: int
    """The CPU time, in thousandths of a core."""
    memory: int
    """The memory, in bytes."""
    gpus: tuple[str, ...] = ()
    """The GPUs, by the names that CUDA_VISIBLE_DEVICES has for them."""
    storage: int = 0
    """The disk space for pods, in bytes."""

    @property
    def amounts(self) -> dict[str, int]:
        """These resources as amounts by resource name. Without GPUs, their resource is not listed."""
        amounts = {"cpu": self.cpu, "memory": self.memory, "pods": MOST_PODS, "ephemeral-storage": self.storage}
        return amounts | ({GPU: len(self.gpus)} if self.gpus else {})


def measure(folder: Path, environment: Mapping[str, str]) -> Machine:
    """Return the resources of this machine that this process may use; `folder` is on the disk to which pods write."""
    return Machine(cpus(), memory(), gpus(environment), shutil.disk_usage(folder).total)


def override(machine: Machine, cpus: str = "", memory: str = "", gpus: int | None = None) -> Machine:
    """Return a machine in which the admin's values replace the measured values. Raise ValueError for a bad quantity."""
    return Machine(
        quantities.parse("cpu", cpus) if cpus else machine.cpu,
        quantities.parse("memory", memory) if memory else machine.memory,
        machine.gpus if gpus is None else tuple(str(index) for index in range(gpus)),
        machine.storage,
    )


def log_bytes(text: str) -> int:
    """Return the bytes of `--container-log-max-size`.

    Raise ValueError, with the name of the option, for a bad quantity.
    """
    try:
        size = quantities.parse("memory", text)
    except ValueError as e:
        raise ValueError(f"--container-log-max-size: {e}") from e
    if size < _LEAST_LOG_BYTES:
        raise ValueError(f"--container-log-max-size must be 1Mi or more, not {text}")
    return size


def cpus() -> int:
    """Return how many thousandths of a core this process may use."""
    allowed = len(os.sched_getaffinity(0)) * 1000
    return min([allowed, *_cpu_quotas()])


def memory() -> int:
    """Return how many bytes of memory this process may use."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = (_number(path) for path in _limit_files("memory", "memory.max", "memory.limit_in_bytes"))
    return min([physical, *filter(None, limits)])


def gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the NVIDIA GPUs that this process may use.

    The driver's tool, else the driver's folder, lists the machine's GPUs; CUDA_VISIBLE_DEVICES selects from them.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    devices = _gpus_of_driver()
    if visible is None:
        return devices
    return tuple(device.strip() for device in visible.split(",") if device.strip()) if devices else ()


def _gpus_of_driver() -> tuple[str, ...]:
    with suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(_GPU_QUERY, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=True)
        return tuple(answer.stdout.split())
    with suppress(OSError):
        return tuple(str(index) for index, _ in enumerate(Path("/proc/driver/nvidia/gpus").iterdir()))
    return ()


def _cpu_quotas() -> Iterator[int]:
    for path in _limit_files("cpu", "cpu.max", "cpu.cfs_quota_us"):
        with suppress(OSError, ValueError):
            fields = path.read_text().split()
            period = fields[1] if len(fields) > 1 else (path.parent / "cpu.cfs_period_us").read_text()
            if int(fields[0]) > 0:
                yield max(1, int(fields[0]) * 1000 // int(period))


def _number(path: Path) -> int:
    with suppress(OSError, ValueError):
        return int(path.read_text())
    return 0


def _limit_files(controller: str, unified: str, legacy: str) -> Iterator[Path]:
    """Yield the files that may limit this process: the files of its own control group and of all its parent groups."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                yield from _upwards(_CGROUPS, path, unified)
            elif controller in controllers.split(","):
                yield from _upwards(_CGROUPS / controller, path, legacy)


def _upwards(mount: Path, path: str, name: str) -> Iterator[Path]:
    steps = Path(path.lstrip("/"))
    for folder in (steps, *steps.parents):
        yield mount / folder / name
