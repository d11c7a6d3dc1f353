"""Which files of a folder are the code of a job, and which files are left out.

One rule: in this order: torchq's own rules leave out version control, environments and caches; .torchqignore decides;
files that look like secrets are left out; everything else is packed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from coordinator import terminal
from coordinator.code import secret_files
from coordinator.code.ignore_rules import IgnoreRules

NEVER_FOLDERS = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".jj",
        "__pycache__",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".hypothesis",
        ".import_linter_cache",
        ".ipynb_checkpoints",
        ".tox",
        ".nox",
        ".eggs",
        ".venv",
        "node_modules",
        ".torchq",
    }
)
"""Folders that are never code of a job; `.torchq` is where a pod finds the package `torchq`."""
NEVER_FILES = frozenset({".git", ".DS_Store", "Thumbs.db"})
NEVER_SUFFIXES = (".pyc", ".pyo", ".swp")
ENVIRONMENT_FILES = ("pyvenv.cfg", "conda-meta/history")
"""Files that only the folder of a virtual or a conda environment has."""
CLUSTER_FILES = ("objects.sqlite", "node.lock")
"""Files that only the folder of a local cluster of torchq has, both of them."""
SECRET = "looks like a secret"


class LeftOut(NamedTuple):
    """A file, or a folder with its slash, that is not packed, and the reason."""

    path: str
    reason: str

    def __str__(self) -> str:
        return terminal.one_line(f"{self.path} {self.reason}")


@dataclass(frozen=True, slots=True)
class FolderListing:
    """The entries of a folder by git's rules. Paths are relative, with slashes."""

    paths: Sequence[str]
    """The files, links and special files that git would take."""
    ignored: Sequence[str] = ()
    """What .gitignore files leave out: files, and whole folders with a slash at the end."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The files to pack, in order, and the files that are left out."""

    paths: Sequence[str]
    left_out: Sequence[LeftOut]
    taken_back: frozenset[str]
    """Paths that a pattern with `!` includes: they are packed, whatever they look like."""


def select(listing: FolderListing, rules: IgnoreRules) -> Selection:
    """Return the files to pack."""
    environments = find_environments([*listing.paths, *listing.ignored])
    paths, left_out, taken_back = [], dict[LeftOut, None](), set()
    ignored = frozenset(listing.ignored)
    for path in sorted({*listing.paths, *ignored}):
        if is_never_code(path) or is_inside(path, environments):
            continue
        reason = _reason(path, rules, is_ignored=path in ignored)
        if reason is not None:
            left_out[reason] = None
            continue
        paths.append(path)
        if _is_taken_back(path, rules):
            taken_back.add(path)
    in_order = sorted(left_out, key=lambda each: (each.reason != SECRET, each.path))
    return Selection(paths, in_order, frozenset(taken_back))


def _reason(path: str, rules: IgnoreRules, *, is_ignored: bool) -> LeftOut | None:
    """Return why a path is left out, for the topmost folder that a rule names; None if it is packed."""
    for part in _ancestors(path):
        verdict = rules.verdict(part)
        if verdict is not None and verdict.ignored and not _is_taken_back(path, rules):
            return LeftOut(part, f"by {verdict.source}")
    if _is_taken_back(path, rules):
        return None
    if secret_files.in_name(path):
        return LeftOut(path, SECRET)
    return LeftOut(path, "by .gitignore") if is_ignored else None


def _is_taken_back(path: str, rules: IgnoreRules) -> bool:
    verdict = rules.verdict(path)
    return verdict is not None and not verdict.ignored


def _ancestors(path: str) -> Iterator[str]:
    """Yield the folders of a path from the top, each with its slash, then the path."""
    end = path.find("/")
    while 0 <= end < len(path) - 1:
        yield path[: end + 1]
        end = path.find("/", end + 1)
    yield path


def find_environments(paths: Iterable[str]) -> frozenset[str]:
    """Return the folders of environments and of local clusters among paths, each with its slash.

    The folder that is packed is never one of these folders.
    """
    found: dict[str, set[str]] = {marker: set() for marker in (*ENVIRONMENT_FILES, *CLUSTER_FILES)}
    for path in paths:
        for marker, folders in found.items():
            if path.endswith(f"/{marker}"):
                folders.add(path.removesuffix(marker))
    clusters = set.intersection(*(found[marker] for marker in CLUSTER_FILES))
    return frozenset(clusters.union(*(found[marker] for marker in ENVIRONMENT_FILES)))


def is_inside(path: str, folders: frozenset[str]) -> bool:
    """Return whether a path is in one of the given folders, each with its slash."""
    return bool(folders) and not folders.isdisjoint(_ancestors(path))


def is_never_code(path: str) -> bool:
    """Return whether a path belongs to version control, a cache or the like."""
    *folders, name = path.rstrip("/").split("/")
    if path.endswith("/"):
        folders.append(name)
    return not NEVER_FOLDERS.isdisjoint(folders) or name in NEVER_FILES or name.endswith(NEVER_SUFFIXES)
