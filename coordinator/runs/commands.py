"""Commands that cannot run: the mistake in each, and the command that was meant.

One rule: only certain mistakes are reported. `read` looks at the folder in which a command will run; `problem` is pure.
"""

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_OPERATORS = frozenset({"&&", "||", "|", ";", ">", ">>", "<", "2>&1", "&"})
_CHAINS = frozenset({"&&", "||"})
"""Operators of a shell that are no argument of any program."""
_BUILT_IN = frozenset({"cd", "export", "source", ".", "set", "unset", "ulimit", "alias", "exec", "eval"})
"""Words that only a shell knows."""
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_INTERPRETERS = {".py": "python", ".sh": "bash", ".bash": "bash"}
_MOST_WORDS = 32
"""Only this many words of a command are looked at as files."""
_HEAD_BYTES = 64 * 1024


class ScriptFile(NamedTuple):
    """A file of the folder that a command names."""

    head: bytes
    """The beginning of its content."""
    executable: bool


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """The facts about the place in which a command will run."""

    files: Mapping[str, ScriptFile] = field(default_factory=dict)
    """The files among the words of the command."""
    missing: frozenset[str] = frozenset()
    """Programs and interpreters that the machine does not have."""
    here: bool = False
    """Whether the command will run on this machine, so that every file of it is known."""
    is_read: bool = False
    """Whether the folder was read in which the command will run."""


NOWHERE = CommandPlace()


def read(command: Sequence[str], folder: Path, *, here: bool) -> CommandPlace:
    """Return the facts about a folder that decide whether a command can run there. `here` says that the command will
    run on this machine."""
    files: dict[str, ScriptFile] = {}
    for word in command[:_MOST_WORDS]:
        path = folder / word
        try:
            if word and path.is_file():
                with path.open("rb") as file:
                    files[word] = ScriptFile(file.read(_HEAD_BYTES), os.access(path, os.X_OK))
        except (OSError, ValueError):
            continue  # whoever runs the command has better words for a file that cannot be read
    programs = {_interpreter(script) for script in files.values()} | {command[0]} if here else set()
    return CommandPlace(
        files, frozenset(each for each in programs if each and not shutil.which(each)), here, is_read=True
    )


def problem(command: Sequence[str], found: CommandPlace = NOWHERE) -> str:
    """Return why a command cannot run, with the command that was meant; empty if it may."""
    reason, meant = next(_problems(command, found), ("", ()))
    return f"{reason}; did you mean: {shlex.join(meant)}" if meant else reason


def _problems(command: Sequence[str], found: CommandPlace) -> Iterator[tuple[str, Sequence[str]]]:
    first, *rest = command
    is_assignment = _ASSIGNMENT.fullmatch(first) and (rest or " " not in first)
    if is_assignment:
        yield f"{first!r} is no program: only a shell sets variables so", ("env", *command)
    is_known = found.here or "/" not in first or (found.is_read and not first.startswith("/"))
    if is_known and first not in found.files and len(first.split()) > 1 and "$(" not in first:
        yield f"{first!r} is one word, and no program has that name", _split(first, rest)
    chains = _CHAINS.intersection(rest[:-1])  # as the last word it is an argument
    if first in _BUILT_IN or chains:
        word = first if first in _BUILT_IN else next(each for each in command if each in chains)
        whole = command if word != first or chains else [*command, "&&", "..."]
        yield f"{word!r} is a word of the shell, and no shell runs the command", _in_shell(whole)
    program = _without_env(command)
    if program:
        yield from _script_problems(program, found)


def _split(first: str, rest: Sequence[str]) -> Sequence[str]:
    """Return the words of a command that was written as one word."""
    try:
        words = [*shlex.split(first), *rest]
    except ValueError:
        return ("bash", "-c", shlex.join([first, *rest]) if rest else first)
    if _OPERATORS.intersection(words) or words[0] in _BUILT_IN or any(mark in first for mark in "$`;|&><"):
        return ("bash", "-c", " ".join([first, *map(shlex.quote, rest)]))
    return ("env", *words) if _ASSIGNMENT.fullmatch(words[0]) else words


def _in_shell(command: Sequence[str]) -> Sequence[str]:
    return ("bash", "-c", " ".join(word if word in _OPERATORS else shlex.quote(word) for word in command))


def _without_env(command: Sequence[str]) -> Sequence[str]:
    """Return a command without `env NAME=VALUE` before the command."""
    if command[0] != "env":
        return command
    rest = list(command[1:])
    while rest and _ASSIGNMENT.fullmatch(rest[0]):
        rest.pop(0)
    return rest


def _script_problems(command: Sequence[str], found: CommandPlace) -> Iterator[tuple[str, Sequence[str]]]:
    first, *rest = command
    if os.path.basename(first) in _SHELLS:
        script = next((word for word in rest if not word.startswith("-")), "")
        if not any(word.startswith("-") and "c" in word for word in rest) and script in found.files:
            yield from _line_ends(script, found.files[script])
        return
    script_file = found.files.get(first)
    if script_file is None:
        return
    interpreter = _INTERPRETERS.get(os.path.splitext(first)[1], "")
    meant = (interpreter, *command) if interpreter else ()
    if "/" not in first:
        if interpreter or first in found.missing:
            reason = f"{first} is a file of the folder, and programs are looked for on PATH only"
            yield reason, meant or (f"./{first}", *rest)
        return
    if not script_file.executable:
        yield f"{first} is not executable (chmod +x {first})", meant
    if script_file.head.startswith(b"#!"):
        yield from _line_ends(first, script_file._replace(head=script_file.head.partition(b"\n")[0] + b"\n"))
    if not script_file.head.startswith(b"#!") and b"\0" not in script_file.head and script_file.head:
        yield f"{first} does not say which program runs it: its first line is no #!", meant
    if (named := _interpreter(script_file)) and named in found.missing:
        yield f"{first} is run by {named}, as its first line says, and that does not exist here", meant


def _line_ends(name: str, script: ScriptFile) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the problem of a script with the line ends of Windows, which neither a shell nor #! understands."""
    if b"\r\n" in script.head:
        yield f"{name} has the line ends of Windows (sed -i 's/\\r$//' {shlex.quote(name)})", ()


def is_standalone(command: Sequence[str]) -> bool:
    """Return whether a command starts torchrun for one node alone."""
    text = " ".join(command)
    return "--standalone" in text and ("torchrun" in text or "torch.distributed.run" in text)


def _interpreter(script: ScriptFile) -> str:
    """Return the program in the first line of a script; empty if the line names none."""
    line = script.head.partition(b"\n")[0]
    words = line[2:].split() if line.startswith(b"#!") else []
    return words[0].decode(errors="replace") if words else ""
