"""Writes the lock files: the packages of torchq, its tests and its demo, each with one version and its wheels' hashes.

One rule: only pip is needed, and only pip reads the index. `pip install --dry-run --report` resolves versions, and
prints the hash of the wheel that it would install for a Python and a platform.

    requirements.lock            the packages that torchq itself needs, and those that build it
    requirements-postgres.lock   the additional packages for the history in PostgreSQL; the image has them
    requirements-dev.lock        the additional packages of the tests and linters
    requirements-demo.lock       the additional packages of the demo, without PyTorch and the libraries for its GPUs:
                                 its builds differ from machine to machine, so pyproject.toml pins its version without
                                 a hash

`make lock` runs this script. With --keep, the versions in the existing files stay, and only the hashes are read again.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
FILES = {
    "": "requirements.lock",
    "postgres": "requirements-postgres.lock",
    "dev": "requirements-dev.lock",
    "demo": "requirements-demo.lock",
}
"""The lock file of each extra in pyproject.toml; the empty name is torchq itself."""
HEADERS = {
    "": "# What torchq needs and what builds it. Written by `make lock`, installed with pip's --require-hashes.\n"
    "# The hashes are those of all wheels for Linux (glibc) and macOS, Python 3.11 to 3.14.\n",
    "postgres": "# What the history in PostgreSQL needs beside requirements.lock. Written by `make lock`.\n",
    "dev": "# What the tests and linters need beside requirements.lock. Written by `make lock`.\n",
    "demo": "# What the demo needs beside requirements.lock, without PyTorch. Written by `make lock`.\n",
}
BUILDS = "setuptools>=77"
UNHASHED = re.compile(r"torch|triton|nvidia-.*|cuda-.*")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_GLIBC = ("2_5", "2_12", "2_17", "2_24", "2_26", "2_27", "2_28")
_MACOS = [f"macosx_{version}_0_{kind}" for version in (11, 12, 13, 14) for kind in ("arm64", "universal2")]
PLATFORMS = (
    [*(f"manylinux_{version}_x86_64" for version in _GLIBC), *(f"manylinux{n}_x86_64" for n in (1, 2010, 2014))],
    [*(f"manylinux_{version}_aarch64" for version in _GLIBC), "manylinux2014_aarch64"],
    ["macosx_10_12_universal2", *_MACOS],
)
"""The tags of the wheels that pip installs, for each kind of machine."""
MACHINES = (("linux", "Linux", "x86_64"), ("linux", "Linux", "aarch64"), ("darwin", "Darwin", "arm64"))
OWN = "torchq-coordinator"
"""The name of this project's own distribution."""
VERSIONS = ("3.11.0", "3.11.99", "3.12.99", "3.13.99", "3.14.99")
"""The Python versions for which markers are evaluated. Some libraries distinguish 3.11.3 from 3.11.2 (Debian 12)."""


class Pin(NamedTuple):
    """One version of a package, and the marker of the environments that need it; an empty marker means all."""

    version: str
    marker: str = ""


def environments() -> Iterator[dict[str, str]]:
    """Yield the environments for which markers are evaluated: every Python on every kind of machine."""
    for full in VERSIONS:
        for platform, system, machine in MACHINES:
            yield {
                "python_version": full.rpartition(".")[0],
                "python_full_version": full,
                "implementation_name": "cpython",
                "platform_python_implementation": "CPython",
                "os_name": "posix",
                "sys_platform": platform,
                "platform_system": system,
                "platform_machine": machine,
                "extra": "",
            }


def pip(*arguments: str) -> list[dict[str, Any]]:
    """Return what pip would install. CalledProcessError if pip fails."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    done = subprocess.run([*command, *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return list(json.loads(done.stdout)["install"])


def resolve(extra: str, pins: dict[str, Pin]) -> dict[str, Pin]:
    """Return the packages of an extra of this project; versions that are pinned already stay."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.writelines(f"{name}=={pin.version}\n" for name, pin in pins.items())
        constraints.flush()
        within = ("--constraint", constraints.name)
        items = pip(*within, f".[{extra}]" if extra else ".", BUILDS)
        needed = {name(item): Pin(item["metadata"]["version"]) for item in items}
        for item in items:
            for dependency in elsewhere(item["metadata"].get("requires_dist") or (), needed):
                [other] = pip(*within, "--no-deps", f"{dependency.name}{dependency.specifier}")
                needed[name(other)] = Pin(other["metadata"]["version"], str(dependency.marker))
    return {package: pin for package, pin in needed.items() if package != OWN and not UNHASHED.fullmatch(package)}


def elsewhere(requires: Iterable[str], needed: dict[str, Pin]) -> Iterator[Requirement]:
    """Yield the dependencies that only another Python or another kind of machine needs."""
    for dependency in map(Requirement, requires):
        is_pinned = canonicalize_name(dependency.name) in needed
        if (
            not is_pinned
            and dependency.marker
            and any(dependency.marker.evaluate(environment) for environment in environments())
        ):
            yield dependency


def name(item: dict[str, Any]) -> str:
    """Return the package name of an entry in pip's report."""
    return str(canonicalize_name(item["metadata"]["name"]))


def wheel_hashes(pins: dict[str, Pin]) -> dict[str, set[str]]:
    """Return the sha256 hashes of each package's wheels."""
    exact = {package: f"{package}=={pin.version}" for package, pin in pins.items()}
    hashes: dict[str, set[str]] = {package: set() for package in pins}

    def add(items: Iterable[dict[str, Any]]) -> None:
        for item in items:
            hashes[name(item)].add(item["download_info"]["archive_info"]["hashes"]["sha256"])

    native_items = pip("--no-deps", "--only-binary", ":all:", *exact.values())
    add(native_items)
    native = [exact[name(item)] for item in native_items if not item["download_info"]["url"].endswith("-none-any.whl")]
    targets = [(python, platforms) for python in PYTHONS for platforms in PLATFORMS]
    with ThreadPoolExecutor(4) as threads:
        for items in threads.map(lambda target: wheels(native, *target), targets):
            add(items)
    return hashes


def wheels(exact: list[str], python: str, platforms: list[str]) -> list[dict[str, Any]]:
    """Return the wheels of packages for one Python on one kind of machine."""
    tags = [part for platform in platforms for part in ("--platform", platform)]
    target = ("--no-deps", "--only-binary", ":all:", "--target", "/nonexistent", "--python-version", python, *tags)
    return pip(*target, *exact)


def text(pins: dict[str, Pin], hashes: dict[str, set[str]]) -> str:
    """Return the text of a lock file."""
    return "".join(
        f"{package}=={pin.version}{f' ; {pin.marker}' if pin.marker else ''} \\\n"
        + " \\\n".join(f"    --hash=sha256:{one}" for one in sorted(hashes[package]))
        + "\n"
        for package, pin in sorted(pins.items())
    )


def parse_pins(lines: Iterable[str]) -> dict[str, Pin]:
    """Return the packages of a lock file, with or without hashes."""
    pins = {}
    for line in lines:
        match = re.match(r"([A-Za-z0-9][-A-Za-z0-9._]*)==([^\s;\\]+)(?:\s*;\s*([^\\]*[^\\\s]))?", line)
        if match:
            pins[str(canonicalize_name(match[1]))] = Pin(match[2], match[3] or "")
    return pins


def main() -> None:
    """Write the lock files."""
    parser = argparse.ArgumentParser(description="Write the lock files.")
    parser.add_argument("--keep", action="store_true", help="keep the versions of the present files")
    is_pinned: dict[str, Pin] = {}
    if parser.parse_args().keep:
        for file in filter(Path.exists, (ROOT / file for file in FILES.values())):
            is_pinned |= parse_pins(file.read_text().splitlines())
    if not is_pinned:
        is_pinned = resolve("postgres,dev,demo", {})  # together, so that all of them agree
    groups = {extra: resolve(extra, is_pinned) for extra in FILES}
    hashes = wheel_hashes({package: pin for group in groups.values() for package, pin in group.items()})
    for extra, file in FILES.items():
        new_pins = {package: pin for package, pin in groups[extra].items() if not extra or package not in groups[""]}
        (ROOT / file).write_text(HEADERS[extra] + text(new_pins, hashes))


if __name__ == "__main__":
    main()
