"""Builds the image of torchq's processes, and runs it: `make image` is this program.

One rule: a line of the table says `ok` only after the image itself has done what the line says. The exit code is 0 if
all lines do, 1 if one does not or the build failed, and 2 if a value is wrong.

    IMAGE     the name of the image; torchq:VERSION if not given
    BASE      the image to start from: NAME@sha256:DIGEST, which is pulled, or localhost/NAME; if not given, a Debian
              base is made here
    BUILDER   buildah, podman or docker; the first of them that is on PATH if not given
"""

import functools
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.errors import LocalError
from deploy.image import builders, local_base, locked_wheels, trial
from deploy.image.builders import Builder, Commands, Image, ImageError, Run
from embedded.redis.server import RedisFailed
from kube.errors import ClusterError

ROOT = Path(__file__).resolve().parents[2]
WHEELS = ROOT / "deploy" / "image" / "wheels"
USER = "65532:65532"
PYTHON = "/opt/torchq/bin/python"
LABELS = ("title", "description", "version", "revision", "licenses", "base.name")
_ERRORS = (ImageError, ClusterError, LocalError, RedisFailed, subprocess.TimeoutExpired, OSError)
_SHELLS = ("sh", "bash", "dash", "ash", "busybox")
_PYTHON_VERSION = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
_FIND_SHELLS = (
    f"import os; folders = ('/bin', '/usr/bin', '/usr/local/bin'); "
    f"found = (os.path.join(each, name) for each in folders for name in {_SHELLS}); "
    "print(*sorted({os.path.realpath(path) for path in found if os.path.exists(path)}))"
)
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
    """The lines of the table, and whether all are good."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)

    def check(self, what: str, look: Callable[[], str]) -> bool:
        """Add a line with what `look` returns, or with the message of its error. Return whether it is good."""
        try:
            result, detail = "ok", look()
        except _ERRORS as error:
            result, detail = "FAILED", str(error)
        self.rows.append((what, result, detail))
        print(f"{what:<22} {result:<7} {detail}", flush=True)
        return result == "ok"

    def is_good(self) -> bool:
        """Return whether there are lines and all are good."""
        return bool(self.rows) and all(result == "ok" for _, result, _ in self.rows)


def main() -> int:
    """Build and check the image, and return the exit code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    image = os.environ.get("IMAGE") or f"torchq:{project['version']}"
    base = os.environ.get("BASE") or ""
    try:
        if base:
            builders.check_base(base)
        builder = builders.choose(os.environ.get("BUILDER") or "")
    except ImageError as error:
        print(f"image: {error}", file=sys.stderr)
        return 2
    table = Table()
    try:
        base = _base(builder, base)
        labels = {"version": project["version"], "revision": revision(), "base.name": base}
        _build(builder, image, base, labels)
        _check(table, builder, image, labels)
    except (ImageError, OSError) as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("image: interrupted", file=sys.stderr)
        return 130
    return 0 if table.is_good() else 1


def check_config(image: Image, expected: Mapping[str, str]) -> str:
    """Return what an image says about itself. Raise ImageError if that is not what a strict cluster needs.

    `expected` has the values of some labels.
    """
    labels = {name: image.labels.get(f"{builders.LABEL}{name}", "") for name in LABELS}
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


def _base(builder: Builder, base: str) -> str:
    """Return the base to use. Pull it, or make one if none is given. Raise ImageError if that fails."""
    wanted = base or local_base.NAME
    if builder.exists(wanted):
        return wanted
    if base.startswith("localhost/"):
        raise ImageError(f"BASE: {builder.name} has no image {base} on this machine")
    if base:
        builders.run([builder.name, "pull", base])
    else:
        print(f"image: no BASE is given; making {wanted} from Debian's packages", flush=True)
        local_base.make(builder)
    return wanted


def _build(builder: Builder, image: str, base: str, labels: Mapping[str, str]) -> None:
    """Build the image. Raise ImageError if that fails."""
    with builder.opened(base) as commands:
        python = builders.run(commands(Run(["-c", _PYTHON_VERSION], program="python3"))).strip()
    count = locked_wheels.download((ROOT / "requirements.lock").read_text(), WHEELS, python)
    print(f"image: Python {python} in {base}; {count} wheels downloaded to {WHEELS.relative_to(ROOT)}", flush=True)
    print(f"image: {builder.name} builds {image}", flush=True)
    builder.build(ROOT, image, base, labels)


def _check(table: Table, builder: Builder, image: str, labels: Mapping[str, str]) -> None:
    """Check the image and add a line for each check. A line that needs an earlier one is left out if that failed."""
    found = builder.inspect(image)
    table.check("config", lambda: check_config(found, labels))
    table.check("size", lambda: _sizes(found))
    with builder.opened(image) as commands:
        shells = builders.run(commands(Run(["-c", _FIND_SHELLS], program=PYTHON))).split()

        def output(arguments: list[str], program: str = "") -> str:
            return builders.run(commands(Run(arguments, program, hidden=shells))).strip()

        table.check("version", lambda: _version(output(["--version"]), labels["version"]))
        table.check("read-only", lambda: output(["-c", _TRY_TO_WRITE], PYTHON))
        table.check("no shell", lambda: _no_shell(commands, shells))
        with trial.trial() as running:
            _try(table, running, commands, shells)


def _try(table: Table, running: trial.Trial, commands: Commands, shells: list[str]) -> None:
    """Run both processes of the image, without a shell. What needs a part that failed is left out."""
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
    """Return which shells are hidden in all runs. Raise ImageError if one can be executed nevertheless."""
    for shell in shells:
        command = commands(Run(["-c", "exit 0"], shell, hidden=shells))
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            raise ImageError(f"{shell} could be executed, so the other runs prove nothing about shells")
    return f"hidden in all these runs: {', '.join(shells)}" if shells else "the image has none"


def _sizes(image: Image) -> str:
    layers = " + ".join(f"{size / 1e6:.1f}" for size in image.layers)
    return f"{image.size / 1e6:.1f} MB uncompressed" + (f"; layers, the base's first: {layers}" if layers else "")


if __name__ == "__main__":
    sys.exit(main())
