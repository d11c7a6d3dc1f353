"""The wheels of requirements.lock in a folder, for a build that asks no package index.

One rule: pip of this machine downloads them, with the hashes of the lock file and with this machine's settings. So no
address or password of an index gets into an image.
"""

import hashlib
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.image.builders import ImageError, run

_ENTRY = re.compile(
    r"^(?P<pin>[a-z0-9-]+==[^\s;]+).*?\\\n(?P<hashes>(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M
)
_GLIBC = ("2_28", "2_27", "2_26", "2_24", "2_17", "2_12", "2_5")
"""The versions of glibc for which packages are built. The lock file has wheels for these only."""


def entries(lock: str) -> dict[str, set[str]]:
    """Return the hashes of each package in a lock file, by `NAME==VERSION`."""
    return {each["pin"]: set(re.findall(r"[0-9a-f]{64}", each["hashes"])) for each in _ENTRY.finditer(lock)}


def missing(lock: str, folder: Path, python: str) -> list[str]:
    """Return the packages of the lock file that have no wheel in the folder for a Python such as `3.11`."""
    fitting = [path for path in folder.glob("*.whl") if _fits(path.name, python)]
    present = {hashlib.sha256(path.read_bytes()).hexdigest() for path in fitting}
    return [pin for pin, hashes in entries(lock).items() if not hashes & present]


def download(lock: str, folder: Path, python: str) -> int:
    """Download what is missing, and delete wheels that the lock file does not have. Return the number of downloads.

    Raise ImageError if pip is missing or fails. The markers of the lock file are left out: the base may have another
    Python than this machine, and a wheel too many does no harm.
    """
    _delete_others(lock, folder, python)
    pins = missing(lock, folder, python)
    if not pins:
        return 0
    known = entries(lock)
    text = "".join(f"{pin} {' '.join(f'--hash=sha256:{each}' for each in sorted(known[pin]))}\n" for pin in pins)
    machine = platform.machine()
    platforms = [f"--platform=manylinux_{version}_{machine}" for version in _GLIBC]
    platforms += [f"--platform=manylinux2014_{machine}", f"--platform=linux_{machine}"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        choice = [f"--python-version={python}", "--implementation=cp", *platforms, "--only-binary=:all:", "--no-deps"]
        run(
            [
                *_pip(),
                "download",
                "--quiet",
                "--require-hashes",
                *choice,
                f"--dest={folder}",
                f"--requirement={file.name}",
            ]
        )
    left = missing(lock, folder, python)
    if left:
        raise ImageError(f"pip downloaded no wheel for Python {python} of: {', '.join(left)}")
    return len(pins)


def _fits(name: str, python: str) -> bool:
    """Return whether the name of a wheel says that it is for a Python, or for any."""
    tag, abi = name.removesuffix(".whl").rsplit("-", 3)[1:3]
    return tag.startswith("py") or abi == "abi3" or f"cp{python.replace('.', '')}" in tag.split(".")


def _delete_others(lock: str, folder: Path, python: str) -> None:
    known = set().union(*entries(lock).values())
    for path in folder.glob("*.whl"):
        if not _fits(path.name, python) or hashlib.sha256(path.read_bytes()).hexdigest() not in known:
            path.unlink()


def _pip() -> list[str]:
    """Return the command of a pip: of this Python, else of the system's."""
    for program in (sys.executable, "python3"):
        if subprocess.run([program, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
            return [program, "-m", "pip"]
    raise ImageError(
        "pip is missing, which downloads the wheels of requirements.lock (on Debian: apt install python3-pip)"
    )
