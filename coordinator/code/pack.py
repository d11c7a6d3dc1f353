"""Packs the folder of a job: selects its files, reads them, and returns the archive.

One rule: this module decides once which files are packed and which are left out; nothing reads the folder later.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import coordinator
from coordinator import terminal
from coordinator.code import archive, folder_listing, ignore_rules, largest, reading, secret_files, selection
from coordinator.code.archive import Archive, CodeFile
from coordinator.code.errors import CodeTooLarge, FolderRefused
from coordinator.code.ignore_rules import IgnoreRules, PatternLine
from coordinator.code.selection import LeftOut, Selection

IGNORE_FILE = ".torchqignore"
CLIENT = "torchq"
"""The package that training code imports."""
CLIENT_PARENT = ".torchq"
"""The folder of the archive in which that package lies."""
LARGEST_RATIO = 64
LARGEST_SUM = 2 * 1024**3
"""The most bytes of all files. Above LARGEST_RATIO times the limit of the archive, no code is that much smaller packed.
"""
EXCLUDE = "exclude"
"""The source of patterns that are no line of a file."""


@dataclass(frozen=True, slots=True)
class PackedCode:
    """The packed code of a job."""

    archive: Archive
    files: int
    """The number of files of the folder that are packed."""
    left_out: tuple[LeftOut, ...]
    secrets: tuple[str, ...] = ()
    """Files that look like a secret and are packed, since a pattern with `!` takes them back."""


def pack(
    folder: Path, exclude: Iterable[str], *, limit: int, tell: Callable[[str], object] = lambda _: None
) -> PackedCode:
    """Pack a folder. `exclude` has further patterns as in .torchqignore; `tell` gets lines if it takes long to look
    through the folder.

    Raises FolderRefused for a folder that cannot be packed, and CodeTooLarge with its largest entries.
    """
    folder_listing.require_readable(folder)
    rules = _rules(folder, exclude)
    found = folder_listing.read(folder, tell)
    if rules.takes_back:
        found = folder_listing.with_ignored_files(folder, found)
    chosen = selection.select(found, rules)
    suspects: list[str] = []
    sizes = reading.sizes(folder, chosen.paths)
    if sum(sizes.values()) > min(LARGEST_RATIO * limit, LARGEST_SUM):
        raise _too_large(folder, sizes, limit)
    try:
        # The files of the client come first, because their paths are first.
        packed = archive.build(chain(client_files(), _files(folder, chosen, suspects)), limit)
    except archive.LimitReached:
        raise _too_large(folder, sizes, limit) from None
    secrets = [LeftOut(path, selection.SECRET) for path in suspects if path not in chosen.taken_back]
    left_out = (*secrets, *chosen.left_out)
    files = len(chosen.paths) - len(secrets)
    if not files:
        texts = "; ".join(map(str, left_out))
        shown = f" (left out: {texts})" if texts else ""
        raise FolderRefused(f"{folder} has no file to pack{shown}: change to the folder of the code")
    return PackedCode(packed, files, left_out, tuple(path for path in suspects if path in chosen.taken_back))


def _rules(folder: Path, exclude: Iterable[str]) -> IgnoreRules:
    try:
        text = (folder / IGNORE_FILE).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        text = ""
    except UnicodeDecodeError as error:
        raise FolderRefused(f"{folder / IGNORE_FILE}: not UTF-8 text") from error
    except OSError as error:
        raise FolderRefused(f"{folder / IGNORE_FILE}: cannot be read ({error.strerror})") from error
    lines = ignore_rules.of_text(text, IGNORE_FILE)
    return ignore_rules.parse([*lines, *(PatternLine(pattern, EXCLUDE) for pattern in exclude)])


def _files(folder: Path, chosen: Selection, suspects: list[str]) -> Iterator[CodeFile]:
    """Yield the files of the folder. Note those that look like a secret: only what the user takes back is packed."""
    for path in chosen.paths:
        file = reading.read(folder, path)
        if is_suspect := secret_files.in_name(path) or secret_files.in_content(file.content):
            suspects.append(path)
        if not is_suspect or path in chosen.taken_back:
            yield file


def client_files() -> list[CodeFile]:
    """Return the files of the package `torchq`, so that a job can import it in any image."""
    package = Path(coordinator.__file__).parents[1] / CLIENT
    paths = sorted(path for path in package.rglob("*") if path.suffix == ".py" or path.name == "py.typed")
    base = f"{CLIENT_PARENT}/{CLIENT}"
    return [CodeFile(f"{base}/{path.relative_to(package).as_posix()}", path.read_bytes()) for path in paths]


def _too_large(folder: Path, sizes: Mapping[str, int], limit: int) -> CodeTooLarge:
    entries = "\n".join(
        f"  {largest.size_text(size):>8}  {terminal.one_line(path)}" for path, size in largest.largest(sizes)
    )
    return CodeTooLarge(
        f"{folder}: the code is larger than {largest.size_text(limit)} when packed: {len(sizes)} files, "
        f"{largest.size_text(sum(sizes.values()))}. Its largest entries:\n{entries}\n"
        f"Leave out what is no code, a pattern a line, in {IGNORE_FILE} or with --exclude. Or keep the code in a "
        "folder that every node sees: TORCHQ_CODE_STORE=file:///FOLDER (setting code_store)"
    )
