"""The entries of a folder by git's rules: the files that git would take, without the files that .gitignore files leave
out.

One rule: where git and a repository exist, git itself answers. Elsewhere .gitignore files are read in the same way.
"""

import os
import stat
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from coordinator.code import ignore_rules, selection
from coordinator.code.errors import CodeTooLarge, FolderRefused
from coordinator.code.ignore_rules import IgnoreRules
from coordinator.code.selection import FolderListing

MOST_ENTRIES = 100_000
"""The most files of one folder. A folder with more is no code, and reading it would take minutes."""
TELL_SECONDS = 2.0
"""How often whoever waits is told how far a listing is."""
Tell = Callable[[str], object]
IGNORE_FILE = ".gitignore"
_TAKEN = ("--cached", "--others", "--exclude-standard")
_IGNORED = ("--others", "--ignored", "--exclude-standard", "--directory")
_UNREADABLE = b"warning: could not open directory '"
# Programs that the configuration of a repository names do not run.
_GIT = ("git", "-c", "core.fsmonitor=false", "ls-files", "-z")


def read(folder: Path, tell: Tell = lambda _: None) -> FolderListing:
    """Return the entries of a folder. `tell` gets a line from time to time if that takes long.

    Raises FolderRefused if a subfolder is unreadable, and CodeTooLarge as soon as the folder has too many files.
    """
    found = _from_git(folder, tell)
    return found if found is not None and found.paths else _from_walk(folder, tell)


def with_ignored_files(folder: Path, listing: FolderListing) -> FolderListing:
    """Return the listing with each file of ignored folders, for patterns that take some of them back."""
    files: list[str] = []
    for path in listing.ignored:
        files += _below(folder, path) if path.endswith("/") and not selection.is_never_code(path) else [path]
        _check_count(files)
    return FolderListing(listing.paths, files)


def require_readable(folder: Path) -> None:
    """Raise FolderRefused if a folder is gone or unreadable."""
    try:
        with os.scandir(folder):
            pass
    except OSError as error:
        raise _refused(folder, "", error) from error


def _refused(folder: Path, path: str, error: OSError) -> FolderRefused:
    return FolderRefused(f"{folder / path}: the folder cannot be read ({error.strerror})")


def _from_git(folder: Path, tell: Tell = lambda _: None) -> FolderListing | None:
    """Return the output of git; None without git or a repository."""
    taken = _git(folder, _TAKEN, tell)
    if taken is None:
        return None
    ignored = _git(folder, _IGNORED, tell) or []
    paths: list[str] = []
    inner: list[str] = []
    environments = selection.find_environments(taken)
    for path in taken:
        name = path.rstrip("/")
        if not name or selection.is_never_code(path) or selection.is_inside(path, environments):
            continue
        mode = _mode(folder / name)
        if stat.S_ISDIR(mode):  # a submodule, or another repository in this one
            nested = _from_git(folder / name)
            paths += [f"{name}/{entry}" for entry in nested.paths] if nested else ()
            inner += [f"{name}/{entry}" for entry in nested.ignored] if nested else ()
        elif mode:
            paths.append(name)
        _check_count(paths)
    return FolderListing([*paths, *_special_files(folder, paths)], [*ignored, *inner])


def _git(folder: Path, options: Iterable[str], tell: Tell) -> list[str] | None:
    """Return the output of `git ls-files`; None if it fails, as it does outside of a repository."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    command, pipe = [*_GIT, *options], subprocess.PIPE
    try:
        with subprocess.Popen(
            command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
        ) as process:
            out, err = _output(process, f"git looks through {folder}", tell)
    except OSError:
        return None
    if process.returncode:
        return None
    if _UNREADABLE in err:
        name = err.partition(_UNREADABLE)[2].partition(b"'")[0].decode(errors="replace")
        raise FolderRefused(f"{folder / name}: the folder cannot be read")
    return list(dict.fromkeys(_joined(folder, "", os.fsdecode(name)) for name in out.split(b"\0") if name))


def _output(process: "subprocess.Popen[bytes]", what: str, tell: Tell) -> tuple[bytes, bytes]:
    """Return the output of a program, and report from time to time that the program is at work. Interrupted, it is
    killed.
    """
    seconds = 0.0
    try:
        while True:
            try:
                return process.communicate(timeout=TELL_SECONDS)
            except subprocess.TimeoutExpired:
                seconds += TELL_SECONDS
                tell(f"{what}, for {seconds:.0f} s; torchq run packs the folder in which it is started")
    except BaseException:
        process.kill()
        raise


def _mode(path: Path) -> int:
    """Return the type of an entry, not following a link; 0 for a file that git knows and that is gone."""
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _special_files(folder: Path, paths: Iterable[str]) -> Iterator[str]:
    """Yield the sockets, fifos and devices beside the files that git takes; git itself ignores such entries."""
    for parent in sorted({"", *(path.rpartition("/")[0] for path in paths)}):
        with os.scandir(folder / parent) as entries:
            for entry in entries:
                if not (entry.is_symlink() or entry.is_file() or entry.is_dir()):
                    yield _joined(folder, parent, entry.name)


def _from_walk(folder: Path, tell: Tell) -> FolderListing:
    told_at = time.monotonic()
    paths: list[str] = []
    ignored: list[str] = []
    ahead: list[tuple[str, tuple[tuple[str, IgnoreRules], ...]]] = [("", ())]
    while ahead:
        parent, outer = ahead.pop()
        entries = _entries(folder, parent)
        is_cluster = entries.keys() >= {*selection.CLUSTER_FILES}
        if parent and (is_cluster or not {"pyvenv.cfg", "conda-meta"}.isdisjoint(entries)):
            continue
        rules = (*outer, *_rules_of(folder, parent, entries))
        for name, is_folder in entries.items():
            path = _joined(folder, parent, name) + "/" * is_folder
            if selection.is_never_code(path):
                continue
            if _is_ignored(path, rules):
                ignored.append(path)
            elif is_folder:
                ahead.append((path[:-1], rules))
            else:
                paths.append(path)
        _check_count(paths)
        if time.monotonic() > told_at + TELL_SECONDS:
            told_at = time.monotonic()
            tell(f"{len(paths):,} files in {folder} so far; torchq run packs the folder in which it is started")
    return FolderListing(paths, ignored)


def _entries(folder: Path, parent: str) -> dict[str, bool]:
    """Return the names in a folder, and whether each is a folder and no link."""
    try:
        with os.scandir(folder / parent) as entries:
            return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    except OSError as error:
        raise _refused(folder, parent, error) from error


def _rules_of(folder: Path, parent: str, names: Iterable[str]) -> Iterator[tuple[str, IgnoreRules]]:
    if IGNORE_FILE not in names:
        return
    try:
        text = (folder / parent / IGNORE_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FolderRefused(f"{folder / parent / IGNORE_FILE}: cannot be read ({error.strerror})") from error
    source = _joined(folder, parent, IGNORE_FILE)
    yield (f"{parent}/" if parent else ""), ignore_rules.parse(ignore_rules.of_text(text, source))


def _is_ignored(path: str, rules: Iterable[tuple[str, IgnoreRules]]) -> bool:
    """Return whether .gitignore files leave a path out; the file that is deepest in the tree comes first."""
    for base, found in reversed([*rules]):
        verdict = found.verdict(path.removeprefix(base))
        if verdict is not None:
            return verdict.ignored
    return False


def _below(folder: Path, path: str) -> list[str]:
    found: list[str] = []
    for parent, folders, files in os.walk(folder / path):
        relative = Path(parent).relative_to(folder).as_posix()
        folders[:] = [name for name in folders if not selection.is_never_code(f"{name}/")]
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        found += [_joined(folder, relative, name) for name in (*files, *links)]
        _check_count(found)
    return found


def _joined(folder: Path, parent: str, name: str) -> str:
    path = f"{parent}/{name}" if parent else name
    try:
        path.encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        raise FolderRefused(
            f"{folder}: the name of {shown} is not UTF-8: rename it, or leave it out with .torchqignore"
        ) from error
    return path


def _check_count(found: list[str]) -> None:
    if len(found) > MOST_ENTRIES:
        [(most, count)] = Counter(path.partition("/")[0] for path in found).most_common(1)
        raise CodeTooLarge(
            f"the folder has more than {MOST_ENTRIES:,} files, of {len(found):,} so far {count:,} in {most}: leave out "
            "what is no code with .torchqignore, or change to the folder of the code"
        )
