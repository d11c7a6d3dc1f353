"""The programs that build images: buildah, podman and docker, behind one interface.

One rule: a builder runs programs of an image the way a strict cluster does. The root is read-only, the capabilities are
gone, the user is the user of the image, and the network is the network of this machine.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("buildah", "podman", "docker")
LABEL = "org.opencontainers.image."
"""How the names of the labels begin that the OCI defines."""
LOCAL = "localhost/"
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
_LAST_LINES = 15


class ImageError(Exception):
    """The image cannot be built; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Image:
    """The description of an image."""

    user: str
    entrypoint: Sequence[str]
    environment: Sequence[str]
    labels: Mapping[str, str]
    size: int
    """In bytes, uncompressed."""
    layers: Sequence[int] = ()
    """The sizes of its layers in bytes, the base's first. Empty if the builder does not say them."""


@dataclass(frozen=True, slots=True)
class Run:
    """One program that runs in an image."""

    arguments: Sequence[str]
    program: str = ""
    """The program instead of the image's entry point."""
    environment: Mapping[str, str] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Folders of this machine that the program may read, by their paths in the image."""
    hidden: Sequence[str] = ()
    """Programs of the image that cannot be executed during the run."""


Commands = Callable[[Run], list[str]]
"""Returns the command of this machine that runs a program in an image that is open."""


def check_base(base: str) -> None:
    """Raise ImageError unless the base is an image of this machine or has a digest."""
    if not base.startswith(LOCAL) and not _DIGEST.search(base):
        raise ImageError(
            f"BASE: {base} has no digest, so each build may start from another image. Give NAME@sha256:DIGEST "
            f"(`docker buildx imagetools inspect {base}` or `skopeo inspect docker://{base}` shows the digest), or an "
            f"image of this machine: {LOCAL}NAME"
        )


def run(command: Sequence[str]) -> str:
    """Run a command to its end and return its output. Raise ImageError with its last lines if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines()[-_LAST_LINES:]
        raise ImageError("\n".join([f"`{' '.join(command[:3])} ...` ended with code {done.returncode}:", *lines]))
    return done.stdout


def succeeds(*command: str) -> bool:
    """Return whether a command ends with code 0."""
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class Engine:
    """podman or docker."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inspecting, self.building = [name, "image", "inspect"], [name, "build"]
        try:
            run([name, "version"])
        except ImageError as error:
            raise ImageError(f"BUILDER: {name} does not work here: {error}") from None

    def inspect(self, image: str) -> Image:
        """Return the description of the image."""
        [found] = json.loads(run([*self.inspecting, image]))
        return _image(found["Config"], found["Size"])

    @contextlib.contextmanager
    def opened(self, image: str) -> Iterator[Commands]:
        """Open an image, so that programs of it can run."""
        yield lambda program: self._command(image, program)

    def _command(self, image: str, program: Run) -> list[str]:
        options = ["--rm", "--read-only", "--network=host", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
        if self.name == "podman":
            options.append("--read-only-tmpfs=false")  # podman makes /tmp and /run writable otherwise
        options += [f"--env={name}={value}" for name, value in program.environment.items()]
        options += [f"--volume=/dev/null:{path}:ro" for path in program.hidden]
        options += [f"--volume={folder}:{path}:ro" for path, folder in program.folders.items()]
        options += [f"--entrypoint={program.program}"] if program.program else []
        return [self.name, "run", *options, image, *program.arguments]


class Buildah:
    """buildah as root. buildah needs neither a daemon nor an OCI runtime.

    buildah isolates by chroot, which works inside a container, too. `buildah run` has no read-only root, so `unshare`
    mounts the root of the image in namespaces of its own.
    """

    name = "buildah"
    inspecting = ("buildah", "inspect", "--type=image")
    # Without --layers, everything above the base would be one layer.
    building = ("buildah", "bud", "--isolation=chroot", "--layers")

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise ImageError("BUILDER: buildah runs the image as root here; use sudo, or BUILDER=podman")
        if "STORAGE_DRIVER" not in os.environ and not succeeds("buildah", "info"):
            os.environ["STORAGE_DRIVER"] = "vfs"  # a container without overlay file systems

    def inspect(self, image: str) -> Image:
        """Return the description of the image."""
        found = json.loads(run([*self.inspecting, image]))
        layers = [layer["size"] for layer in json.loads(found["Manifest"])["layers"]]
        return _image(found["OCIv1"]["config"], sum(layers), layers)

    @contextlib.contextmanager
    def opened(self, image: str) -> Iterator[Commands]:
        """Open an image, so that programs of it can run."""
        config = self.inspect(image)
        container = run(["buildah", "from", "--pull-never", image]).strip()
        try:
            root = run(["buildah", "mount", container]).strip()
            yield lambda program: _in_root(root, config, program)
        finally:
            run(["buildah", "rm", container])


Builder = Engine | Buildah
"""A program that builds images and runs them: `building` and `inspecting` begin its commands for that."""


def choose(wanted: str) -> Builder:
    """Return the wanted builder, or the first that is on PATH. Raise ImageError if no such program is installed."""
    if wanted and wanted not in NAMES:
        raise ImageError(f"BUILDER: {wanted} is not known; use {', '.join(NAMES[:-1])} or {NAMES[-1]}")
    found = [name for name in ([wanted] if wanted else NAMES) if shutil.which(name)]
    if not found:
        missing = f"{wanted} is" if wanted else f"{', '.join(NAMES[:-1])} and {NAMES[-1]} are"
        raise ImageError(
            f"BUILDER: {missing} not on PATH. Install one (on Debian: apt install buildah), or name one: BUILDER=podman"
        )
    if not wanted and found[0] == "buildah" and os.geteuid() != 0 and len(found) > 1:
        del found[0]  # podman and docker need no root
    return Buildah() if found[0] == "buildah" else Engine(found[0])


def _in_root(root: str, config: Image, program: Run) -> list[str]:
    """Return the command that runs a program of the image in `root`, in mounts of its own."""
    for path in program.folders:
        Path(root + path).mkdir(parents=True, exist_ok=True)
    mounts = [f"mount --bind {root} {root}", f"mount -o remount,bind,ro {root}"]
    mounts += [f"mount --rbind /{each} {root}/{each}" for each in ("proc", "dev")]
    mounts += [f"mount --bind /dev/null {root}{path}" for path in program.hidden]
    for path, folder in program.folders.items():
        mounts += [f"mount --bind {folder} {root}{path}", f"mount -o remount,bind,ro {root}{path}"]
    user, _, group = (config.user or "0").partition(":")
    chroot = [shutil.which("chroot") or "/usr/sbin/chroot", f"--userspec={user}:{group or user}", "--groups=", root]
    environment = ["HOME=/", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", *config.environment]
    environment += [f"{name}={value}" for name, value in program.environment.items()]
    command = [program.program] if program.program else config.entrypoint
    script = "; ".join(["set -e", *mounts, "cd /", 'exec setpriv --no-new-privs env -i "$@"'])
    mounted = ["unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh"]
    return [*mounted, *environment, *chroot, *command, *program.arguments]


def _image(config: Mapping[str, Any], size: int, layers: Sequence[int] = ()) -> Image:
    user, labels = config.get("User") or "", config.get("Labels") or {}
    return Image(user, config.get("Entrypoint") or (), config.get("Env") or (), labels, size, layers)
