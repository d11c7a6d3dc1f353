"""How fast folders are packed: a made tree, and the folder of this checkout.

One rule: reading, selecting and compressing count, and nothing else; the files are in the page cache.
"""

import io
import random
import statistics
import subprocess
import tarfile
import time
from pathlib import Path

from bench.errors import BenchError
from bench.report import Figures
from bench.support.machine import ROOT
from coordinator.code import pack
from coordinator.code.archive import Archive

_LIMIT = 64 * 2**20
_FILES_OF_A_FOLDER = 20
_WORDS = (ROOT / "bench" / "README.md").read_text().split()
_LINE_WORDS = 12


def measure(folder: Path, files: int, kib: int, rounds: int) -> Figures:
    """Return the rates for a made tree, with git and without, and for this checkout."""
    make_tree(folder, files, kib)
    without = _figures("walked", folder, rounds)
    _init_git(folder)
    return {**without, **_figures("git", folder, rounds), **_figures("checkout", ROOT, rounds)}


def make_tree(folder: Path, files: int, kib: int) -> None:
    """Write so many text files of a size into folders of twenty; the same arguments give the same files."""
    chance = random.Random(1)
    for number in range(files):
        parent = folder / f"package_{number // _FILES_OF_A_FOLDER}"
        parent.mkdir(parents=True, exist_ok=True)
        (parent / f"module_{number}.py").write_text(_text(chance, kib * 1024))


def _text(chance: random.Random, size: int) -> str:
    lines: list[str] = []
    length = 0
    while length <= size:
        lines.append(" ".join(chance.choices(_WORDS, k=_LINE_WORDS)))
        length += len(lines[-1]) + 1
    return "\n".join(lines)[:size]


def _init_git(folder: Path) -> None:
    try:
        subprocess.run(["git", "init", "-q", str(folder)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BenchError(f"git init: {error}: install git") from error


def _figures(name: str, folder: Path, rounds: int) -> Figures:
    """Pack a folder some times, and return the figures of the middle one."""
    packed = pack.pack(folder, (), limit=_LIMIT)
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        packed = pack.pack(folder, (), limit=_LIMIT)
        seconds.append(time.perf_counter() - began)
    middle = statistics.median(seconds)
    return {
        f"pack_{name}_files": packed.archive.files,
        f"pack_{name}_s": round(middle, 3),
        f"pack_{name}_files_per_s": round(packed.archive.files / middle),
        f"pack_{name}_mib_per_s": round(_mib(packed.archive) / middle, 1),
        f"pack_{name}_packed_mib": round(len(packed.archive.content) / 2**20, 2),
    }


def _mib(archive: Archive) -> float:
    """Return the size of the files in an archive before they were compressed."""
    with tarfile.open(fileobj=io.BytesIO(archive.content)) as tar:
        return sum(member.size for member in tar) / 2**20
