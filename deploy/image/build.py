"""Builds the image of torchq's processes, and runs it: `make image` is this program.

One rule: a line of the table says `ok` only after the image itself has passed the check in the line. The exit code is 0
if all lines say `ok`, 1 if a line does not or the build failed, and 2 if a value is wrong.

    IMAGE     the name of the image; torchq:VERSION if not given
    BASE      the image to start from: NAME@sha256:DIGEST, which is pulled, or localhost/NAME; if not given, a Debian
              base is made here
    BUILDER   buildah, podman or docker; the first of them that is on PATH if not given

The build itself asks no package index: pip of this machine downloads the wheels of the lock files before, with their
hashes and this machine's settings. So no address or password of an index gets into an image.
"""

import functools
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.errors import LocalError
from deploy.image import builders, trial
from deploy.image.builders import LABEL, LOCAL, Builder, Commands, Image, ImageError, Run, run, succeeds
from embedded.redis.server_program import RedisFailed
from kube.errors import ClusterError

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path("deploy/image")
LOCKS = ("requirements.lock", "requirements-postgres.lock")
BASE = f"{LOCAL}torchq-base:bookworm"
"""The base that is made here, of Debian 12, which has Python 3.11."""
USER = "65532:65532"
PYTHON = "/opt/torchq/bin/python"
LABELS = ("title", "description", "version", "revision", "licenses", "base.name")
_ERRORS = (ImageError, ClusterError, LocalError, RedisFailed, subprocess.TimeoutExpired, OSError)
_GLIBC = ("2_28", "2_27", "2_26", "2_24", "2_17", "2_12", "2_5")
"""The versions of glibc for which packages are built. The lock file has wheels for these only."""
_SHELLS = ("sh", "bash", "dash", "ash", "busybox")
_PYTHON_VERSION = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
_FIND_SHELLS = (
    f"import os; folders = ('/bin', '/usr/bin', '/usr/local/bin'); "
    f"found = (os.path.join(each, name) for each in folders for name in {_SHELLS}); "
    "print(*sorted({os.path.realpath(path) for path in found if os.path.exists(path)}))"
)
_FIND_POSTGRES = "import psycopg; print(f'psycopg {psycopg.__version__}, libpq {psycopg.pq.version()}')"
_TRY_TO_WRITE = """
import errno, os, pathlib
assert (os.getuid(), os.getgid()) == (65532, 65532), "the user is %d:%d" % (os.getuid(), os.getgid())
assert os.getgroups() in ([], [65532]), "further groups: %s" % os.getgroups()
for folder in ("/", "/opt/torchq", "/tmp", "/var/tmp", "/run", "/home"):
    try:
        pathlib.Path(folder, "written").touch()
    except OSError as error:
        assert error.errno == errno.EROFS, "%s: %s" % (folder, error)
    else:
        raise AssertionError("%s can be written" % folder)
print("user 65532:65532; nothing can be written, /tmp neither")
"""


@dataclass(slots=True)
class Table:
    """The lines of the table, and whether each is good."""

    results: list[bool] = field(default_factory=list)

    def check(self, what: str, look: Callable[[], str]) -> bool:
        """Print a line with the result of `look`, or with the message of its error. Return whether the check passes."""
        try:
            result, detail = "ok", look()
        except _ERRORS as error:
            result, detail = "FAILED", str(error)
        self.results.append(result == "ok")
        print(f"{what:<22} {result:<7} {detail}", flush=True)
        return self.results[-1]

    def is_good(self) -> bool:
        """Return whether there are lines and all are good."""
        return bool(self.results) and all(self.results)


def main() -> int:
    """Build and check the image, and return the exit code."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    image, base = os.environ.get("IMAGE") or f"torchq:{version}", os.environ.get("BASE") or ""
    code = 2
    try:
        if base:
            builders.check_base(base)
        builder = builders.choose(os.environ.get("BUILDER") or "")
        code = 1
        _provide_base(builder, base)
        labels = {"version": version, "revision": revision(), "base.name": base or BASE}
        _build(builder, image, labels)
        table = Table()
        _check(table, builder, image, labels)
        return 0 if table.is_good() else 1
    except (ImageError, OSError) as error:
        print(f"image: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("image: interrupted", file=sys.stderr)
        code = 130
    return code


def check_config(image: Image, expected: Mapping[str, str]) -> str:
    """Return the description of an image. Raise ImageError if the image does not fit a strict cluster.

    `expected` has the values of some labels.
    """
    labels = {name: image.labels.get(f"{LABEL}{name}", "") for name in LABELS}
    empty = [name for name, value in labels.items() if not value]
    if empty:
        raise ImageError(f"labels without a value: {', '.join(empty)}")
    for name, value in expected.items():
        if labels[name] != value:
            raise ImageError(f"the label {name} is {labels[name]}, not {value}")
    if image.user != USER:
        raise ImageError(f"the user is {image.user or 'root'}, not {USER}")
    if len(image.entrypoint) != 1 or not image.entrypoint[0].startswith("/opt/torchq/"):
        raise ImageError(f"the entry point is {list(image.entrypoint)}, not torchq itself")
    return f"user {image.user}, entry point {image.entrypoint[0]}, revision {labels['revision']}, {len(labels)} labels"


def revision() -> str:
    """Return the commit of the sources, with `-dirty` if files differ from it; `unknown` outside a repository."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _provide_base(builder: Builder, base: str) -> None:
    """Pull the base, or make a base if none is given. Raise ImageError on failure."""
    if succeeds(*builder.inspecting, base or BASE):
        return
    if base.startswith(LOCAL):
        raise ImageError(f"BASE: {builder.name} has no image {base} on this machine")
    if base:
        run([builder.name, "pull", base])
        return
    print(f"image: no BASE is given; making {BASE} from Debian's packages", flush=True)
    reason = "debootstrap is not on PATH" if not shutil.which("debootstrap") else ""
    reason = reason or ("debootstrap needs root" if os.geteuid() != 0 else "")
    if reason:
        raise ImageError(
            f"BASE: none is given, and no Debian base can be made: {reason}. Give BASE=python:3.11-slim@sha256:DIGEST, "
            "or, as root on Debian, apt install debootstrap"
        )
    mirror = os.environ.get("DEBIAN_MIRROR")
    with tempfile.TemporaryDirectory(prefix="torchq-base-") as folder:
        system = Path(folder, "system")
        packages = "--include=python3,python3-venv,ca-certificates"
        run(["debootstrap", "--variant=minbase", packages, "bookworm", str(system), *([mirror] if mirror else [])])
        Path(folder, "Dockerfile").write_text("FROM scratch\nADD system.tar /\n")
        caches = ("--exclude=./var/cache/apt/*", "--exclude=./var/lib/apt/lists/*")
        run(["tar", "-c", "--numeric-owner", *caches, f"--directory={system}", f"--file={system}.tar", "."])
        shutil.rmtree(system)
        run([*builder.building, f"--tag={BASE}", folder])


def download_wheels(lock: str, folder: Path, python: str) -> int:
    """Let a folder have the wheels of a lock file for a Python such as `3.11`, and no other wheels. Return how many are
    new.

    A folder that has them already needs no index. Raise ImageError if pip is missing or fails. The markers of the lock
    file are left out: the base may have another Python than this machine, and a wheel too many does no harm.
    """
    machine = platform.machine()
    platforms = [f"manylinux_{version}_{machine}" for version in _GLIBC]
    platforms += [f"manylinux2014_{machine}", f"linux_{machine}"]
    with tempfile.TemporaryDirectory(dir=folder) as new:
        pins = Path(new, "pins")
        pins.write_text(re.sub(r" ; .+(?= \\$)", "", lock, flags=re.MULTILINE))
        command = [*_pip(), "download", "--quiet", "--require-hashes", "--only-binary=:all:", "--no-deps"]
        command += [f"--python-version={python}", "--implementation=cp", *(f"--platform={each}" for each in platforms)]
        command += [f"--find-links={folder}", f"--dest={new}", f"--requirement={pins}"]
        if not succeeds(*command, "--no-index"):
            run(command)
        old = {path.name for path in folder.glob("*.whl")}
        found = {path.name for path in Path(new).glob("*.whl")}
        for name in old - found:
            (folder / name).unlink()
        for name in found - old:
            Path(new, name).rename(folder / name)
    return len(found - old)


def _pip() -> list[str]:
    """Return the command of a pip: of this Python, else of the system's."""
    for program in (sys.executable, "python3"):
        if succeeds(program, "-m", "pip", "--version"):
            return [program, "-m", "pip"]
    raise ImageError(
        "pip is missing, which downloads the wheels of the lock files (on Debian: apt install python3-pip)"
    )


def _build(builder: Builder, image: str, labels: Mapping[str, str]) -> None:
    """Build the image. Raise ImageError on failure."""
    base, wheels = labels["base.name"], FOLDER / "wheels"
    with builder.opened(base) as commands:
        python = run(commands(Run(["-c", _PYTHON_VERSION], program="python3"))).strip()
    count = download_wheels("".join((ROOT / each).read_text() for each in LOCKS), ROOT / wheels, python)
    print(f"image: Python {python} in {base}; {count} wheels downloaded to {wheels}", flush=True)
    print(f"image: {builder.name} builds {image}", flush=True)
    # Labels are options, since buildah takes one of a build argument from its cache even if the argument has changed.
    given = [f"--label={LABEL}{name}={value}" for name, value in labels.items()]
    file = f"--file={ROOT / FOLDER / 'Dockerfile'}"
    run([*builder.building, file, f"--tag={image}", f"--build-arg=BASE={base}", *given, str(ROOT)])


def _check(table: Table, builder: Builder, image: str, labels: Mapping[str, str]) -> None:
    """Check the image and add a line for each check. A line that needs an earlier line is left out if the earlier line
    failed.
    """
    found = builder.inspect(image)
    table.check("config", lambda: check_config(found, labels))
    table.check("size", lambda: _sizes(found))
    with builder.opened(image) as commands:
        shells = run(commands(Run(["-c", _FIND_SHELLS], program=PYTHON))).split()

        def output(arguments: list[str], program: str = "") -> str:
            return run(commands(Run(arguments, program, hidden=shells))).strip()

        table.check("version", lambda: _version(output(["--version"]), labels["version"]))
        table.check("PostgreSQL", lambda: output(["-c", _FIND_POSTGRES], PYTHON))
        table.check("read-only", lambda: output(["-c", _TRY_TO_WRITE], PYTHON))
        table.check("no shell", lambda: _no_shell(commands, shells))
        with trial.trial() as running:
            _try(table, running, commands, shells)


def _try(table: Table, running: trial.Trial, commands: Commands, shells: list[str]) -> None:
    """Run both processes of the image, without a shell. Checks that need a failed part are left out."""
    if not table.check("cluster", running.start_cluster):
        return
    for name in ("coordinator", "worker"):
        if not table.check(name, functools.partial(running.start_process, name, commands, shells)):
            return
    if table.check("job", running.run_job):
        for name in ("worker", "coordinator"):
            table.check(f"SIGTERM to {name}", functools.partial(running.stop, name))


def _version(output: str, version: str) -> str:
    if output != f"torchq {version}":
        raise ImageError(f"`torchq --version` printed {output!r}, not torchq {version}")
    return output


def _no_shell(commands: Commands, shells: list[str]) -> str:
    """Return which shells are hidden in all runs. Raise ImageError if a shell can be executed nevertheless."""
    for shell in shells:
        if succeeds(*commands(Run(["-c", "exit 0"], shell, hidden=shells))):
            raise ImageError(f"{shell} could be executed, so the other runs prove nothing about shells")
    return f"hidden in all these runs: {', '.join(shells)}" if shells else "the image has none"


def _sizes(image: Image) -> str:
    layers = " + ".join(f"{size / 1e6:.1f}" for size in image.layers)
    return f"{image.size / 1e6:.1f} MB uncompressed" + (f"; layers, the base's first: {layers}" if layers else "")


if __name__ == "__main__":
    sys.exit(main())
