"""Write the lock files: every package that torchq, its tests and its demo need, with one version and the hashes of its
wheels.

One rule: nothing but pip is needed, and pip alone asks the index: `pip install --dry-run --report` resolves versions,
and says the hash of the wheel that it would take for a Python and a platform.

    requirements.lock        what torchq itself needs, and what builds it
    requirements-dev.lock    what the tests and linters need beside it
    requirements-demo.lock   what the demo needs beside it, but for PyTorch and the libraries of its GPUs: its builds
                             differ from machine to machine, so pyproject.toml pins its version and no hash is kept

Run by `make lock`; with --keep the versions of the present files stay, and only hashes are looked up again.
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
FILES = {"": "requirements.lock", "dev": "requirements-dev.lock", "demo": "requirements-demo.lock"}
"""By the extra of pyproject.toml."""
HEADERS = {
    "": "# What torchq needs and what builds it. Written by `make lock`, installed with pip's --require-hashes.\n"
    "# The hashes are those of all wheels for Linux (glibc) and macOS, Python 3.11 to 3.14.\n",
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
"""Of each kind of machine, the tags that pip takes there."""
MACHINES = (("linux", "Linux", "x86_64"), ("linux", "Linux", "aarch64"), ("darwin", "Darwin", "arm64"))
VERSIONS = ("3.11.0", "3.11.99", "3.12.99", "3.13.99", "3.14.99")
"""Python versions for which markers are judged: libraries tell 3.11.2, which Debian 12 has, from 3.11.3."""


class Pin(NamedTuple):
    """One version of a package, and the markers of the places where it is needed; none: everywhere."""

    version: str
    marker: str = ""


def environments() -> Iterator[dict[str, str]]:
    """What markers are judged by: every Python on every kind of machine."""
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
    """What pip would install. CalledProcessError if it cannot."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    done = subprocess.run([*command, *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return list(json.loads(done.stdout)["install"])


def resolved(extra: str, pins: dict[str, Pin]) -> dict[str, Pin]:
    """What an extra of this project needs, with the versions that are pinned already."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.writelines(f"{name}=={pin.version}\n" for name, pin in pins.items())
        constraints.flush()
        within = ("--constraint", constraints.name)
        found = pip(*within, f".[{extra}]" if extra else ".", BUILDS)
        needed = {name(each): Pin(each["metadata"]["version"]) for each in found}
        for each in found:
            for dependency in elsewhere(each["metadata"].get("requires_dist") or (), needed):
                [other] = pip(*within, "--no-deps", f"{dependency.name}{dependency.specifier}")
                needed[name(other)] = Pin(other["metadata"]["version"], str(dependency.marker))
    return {each: pin for each, pin in needed.items() if each != "torchq" and not UNHASHED.fullmatch(each)}


def elsewhere(requires: Iterable[str], needed: dict[str, Pin]) -> Iterator[Requirement]:
    """Dependencies that are not needed here, but by another Python or machine."""
    for dependency in map(Requirement, requires):
        known = canonicalize_name(dependency.name) in needed
        if not known and dependency.marker and any(dependency.marker.evaluate(each) for each in environments()):
            yield dependency


def name(item: dict[str, Any]) -> str:
    """The package of an entry of pip's report."""
    return str(canonicalize_name(item["metadata"]["name"]))


def hashed(pins: dict[str, Pin]) -> dict[str, set[str]]:
    """The sha256 of each package's wheels."""
    exact = {each: f"{each}=={pin.version}" for each, pin in pins.items()}
    found: dict[str, set[str]] = {each: set() for each in pins}

    def add(items: Iterable[dict[str, Any]]) -> None:
        for each in items:
            found[name(each)].add(each["download_info"]["archive_info"]["hashes"]["sha256"])

    here = pip("--no-deps", "--only-binary", ":all:", *exact.values())
    add(here)
    native = [exact[name(each)] for each in here if not each["download_info"]["url"].endswith("-none-any.whl")]
    targets = [(python, platforms) for python in PYTHONS for platforms in PLATFORMS]
    with ThreadPoolExecutor(4) as threads:
        for items in threads.map(lambda target: wheels(native, *target), targets):
            add(items)
    return found


def wheels(exact: list[str], python: str, platforms: list[str]) -> list[dict[str, Any]]:
    """The wheels of packages for one Python on one kind of machine."""
    tags = [part for each in platforms for part in ("--platform", each)]
    target = ("--no-deps", "--only-binary", ":all:", "--target", "/nonexistent", "--python-version", python, *tags)
    return pip(*target, *exact)


def text(pins: dict[str, Pin], hashes: dict[str, set[str]]) -> str:
    """The lines of a lock file."""
    return "".join(
        f"{each}=={pin.version}{f' ; {pin.marker}' if pin.marker else ''} \\\n"
        + " \\\n".join(f"    --hash=sha256:{one}" for one in sorted(hashes[each]))
        + "\n"
        for each, pin in sorted(pins.items())
    )


def pinned(lines: Iterable[str]) -> dict[str, Pin]:
    """The packages of a lock file, with and without hashes."""
    found = {}
    for line in lines:
        match = re.match(r"([A-Za-z0-9][-A-Za-z0-9._]*)==([^\s;\\]+)(?:\s*;\s*([^\\]*[^\\\s]))?", line)
        if match:
            found[str(canonicalize_name(match[1]))] = Pin(match[2], match[3] or "")
    return found


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description="Write the lock files.")
    parser.add_argument("--keep", action="store_true", help="keep the versions of the present files")
    known: dict[str, Pin] = {}
    if parser.parse_args().keep:
        for file in filter(Path.exists, (ROOT / each for each in FILES.values())):
            known |= pinned(file.read_text().splitlines())
    if not known:
        known = resolved("dev,demo", {})  # together, so that all of them agree
    groups = {extra: resolved(extra, known) for extra in FILES}
    hashes = hashed(groups[""] | groups["dev"] | groups["demo"])
    for extra, file in FILES.items():
        own = {each: pin for each, pin in groups[extra].items() if not extra or each not in groups[""]}
        (ROOT / file).write_text(HEADERS[extra] + text(own, hashes))


if __name__ == "__main__":
    main()
