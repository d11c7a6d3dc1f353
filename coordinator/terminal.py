"""The door to the terminal: what torchq prints passes it, and no control character of anybody else does.

Names, messages, events, reports, errors and file names come from people and programs that the reader need not trust. A
control character in them could set the title of a terminal, write to its clipboard, or hide what another line says.

One rule: while a command runs, its standard output and standard error are doors. Only the functions of this module, and
the screen of `torchq top`, write beneath a door.
"""

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO

CLEAR_SCREEN, ERASE_LINE = "\x1b[2J\x1b[H", "\r\x1b[K"
"""The sequences that torchq itself sends to a terminal."""
_CONTROL = r"\x00-\x08\x0b-\x1f\x7f-\x9f"
"""C0 without tab and line end, DEL, and C1, which a terminal obeys as it obeys ESC with another character."""
_DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""The characters that change the direction of a text, by which a name can look like another name."""
_SURROGATES = "\ud800-\udfff"
"""What Python makes of bytes that are no UTF-8, such as those of a file name."""
_SHOWN = re.compile(f"[{_CONTROL}{_DIRECTION}{_SURROGATES}]")
_IN_JSON = re.compile(f"[\x7f-\x9f{_DIRECTION}]")
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?")
"""A whole sequence of a terminal: CSI, such as a color or a move of the cursor, or OSC, such as a title."""
_COLOR = re.compile(r"\x1b\[[0-9;:]{0,64}m")
_TAB_OR_COLOR = re.compile(rf"(\t|{_COLOR.pattern})")
_RESET = "\x1b[0m"


def clean(text: str) -> str:
    r"""Return a text in which control characters are shown as `\x1b`. Line ends and tabs stay."""
    return _SHOWN.sub(_show, text)


def one_line(text: object) -> str:
    """Return a clean text of one line: a place in a layout, which the text must not leave."""
    return clean(str(text).replace("\n", " ").replace("\t", " "))


def _show(found: re.Match[str]) -> str:
    number = ord(found[0])
    if 0xDC80 <= number <= 0xDCFF:
        number -= 0xDC00
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def clean_json(text: str) -> str:
    """Return JSON with the control characters that JSON allows as escapes, so that programs read the same values."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def colored(line: str) -> str:
    """Return a line of a log with its colors, which end with the line. Other sequences of a terminal are left out, and
    other control characters are shown.
    """
    pieces, end = [], 0
    for found in _SEQUENCE.finditer(line):
        pieces.append(clean(line[end : found.start()]))
        pieces.append(found[0] if _COLOR.fullmatch(found[0]) else "")
        end = found.end()
    text = "".join([*pieces, clean(line[end:])])
    return text + _RESET if any(map(_COLOR.fullmatch, pieces)) and not text.endswith(_RESET) else text


def _without_tabs(line: str) -> str:
    """Return a line in which spaces lead to the columns of its tabs; a color takes no column."""
    pieces, column = [], 0
    for piece in _TAB_OR_COLOR.split(line):
        shown = " " * (8 - column % 8) if piece == "\t" else piece
        column += 0 if _COLOR.fullmatch(piece) else len(shown)
        pieces.append(shown)
    return "".join(pieces)


def plain(line: str) -> str:
    """Return a line of a log without colors, with spaces for tabs: each character takes a column."""
    return clean(_SEQUENCE.sub("", line)).expandtabs()


class TextBuffer(io.RawIOBase):
    """The bytes of a text stream, for commands that print bytes. No way around the stream."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream

    def writable(self) -> bool:
        """Return that it takes bytes."""
        return True

    def write(self, content: Any) -> int:
        """Write bytes as text."""
        self._stream.write(bytes(content).decode(errors="replace"))
        return len(content)


class Door:
    """A text stream that cleans what is written to it."""

    def __init__(self, beneath: TextIO | io.TextIOBase) -> None:
        self.beneath = beneath
        self.buffer = TextBuffer(self)

    def write(self, text: str) -> int:
        """Write a text, with escapes for what the encoding of the stream lacks."""
        encoding = getattr(self.beneath, "encoding", None) or "utf-8"
        self.beneath.write(clean(text).encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.beneath, name)


def put_doors() -> None:
    """Put doors before standard output and standard error, for as long as the process lives."""
    sys.stdout, sys.stderr = (_door(stream) for stream in (sys.stdout, sys.stderr))


@contextlib.contextmanager
def doors() -> Iterator[None]:
    """Put doors before standard output and standard error, and take them away at the end."""
    before = sys.stdout, sys.stderr
    put_doors()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _door(stream: Any) -> Any:
    return stream if stream is None or isinstance(stream, Door) else Door(stream)


def beneath(stream: Any) -> Any:
    """Return the stream behind a door. Whoever writes to that stream has cleaned the text."""
    return stream.beneath if isinstance(stream, Door) else stream


def begin_screen(*, is_first: bool) -> None:
    """Clear the screen of standard output; elsewhere than on a terminal, leave a line free after the screen before."""
    _write(CLEAR_SCREEN if sys.stdout.isatty() else "\n" * (not is_first))


def erase_line() -> None:
    """Erase the line of standard output in which the cursor is."""
    _write(ERASE_LINE)


def write_state(line: str, columns: int) -> None:
    """Write the unfinished state of a line of a log over the present line of standard output."""
    _write(ERASE_LINE + plain(line)[:columns])


def write_log_line(label: str, line: str) -> None:
    """Write a line of a log to standard output: with its colors, and on a terminal with spaces for tabs."""
    text = clean(label) + colored(line)
    _write((_without_tabs(text) if sys.stdout.isatty() else text) + "\n")


def write_raw(text: str) -> None:
    """Write output of a pod to standard output as the pod printed it. Only a user who asks for that gets it."""
    _write(text)


def _write(text: str) -> None:
    stream = beneath(sys.stdout)
    stream.flush()
    stream.buffer.write(text.encode("utf-8", "replace"))  # whatever the terminal's encoding is
    stream.buffer.flush()
