"""What reaches a terminal of texts that others wrote."""

import io
import json
import re
import sys
import unicodedata

import click
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator import terminal
from coordinator.cli.rpc import command_output
from coordinator.cli.rpc.call_errors import CallError
from coordinator.cli.rpc.command_output import CommandOutput
from coordinator.terminal import Door

COLOR = re.compile(r"\x1b\[[0-9;:]*m")
EVERY_CONTROL = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]))
HOSTILE = st.text(st.one_of(st.sampled_from(EVERY_CONTROL + "\x1b\x1b\x1b[]m;0\\"), st.characters()))


DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def controls(text: str, but: str = "\n\t") -> set[str]:
    """Return the characters of a text that a terminal may obey."""
    kinds = {each: (unicodedata.category(each), unicodedata.bidirectional(each)) for each in set(text) - set(but)}
    return {each for each, (kind, direction) in kinds.items() if kind in ("Cc", "Cs") or direction in DIRECTIONS}


@given(HOSTILE)
def test_nothing_that_a_terminal_obeys_is_left_in_a_clean_text(text: str) -> None:
    assert controls(terminal.clean(text)) == set()
    assert controls(terminal.one_line(text), but="") == set()
    assert controls(terminal.plain(text), but="\n") == set()


@given(HOSTILE)
def test_a_line_of_a_log_has_its_colors_and_nothing_else_that_a_terminal_obeys(text: str) -> None:
    shown = terminal.colored(text)
    assert controls(COLOR.sub("", shown)) == set()
    assert not COLOR.search(shown) or shown.endswith("\x1b[0m")


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs"))))
def test_a_text_without_control_characters_stays_as_it_is(text: str) -> None:
    assert terminal.clean(text) == terminal.one_line(text) == terminal.colored(text) == text


@given(st.dictionaries(st.text(), st.text(st.one_of(st.sampled_from(EVERY_CONTROL), st.characters(codec="utf-8")))))
def test_json_stays_the_same_value_without_control_characters(value: dict[str, str]) -> None:
    shown = terminal.clean_json(orjson.dumps(value).decode())
    assert controls(shown, but="") == set()
    assert json.loads(shown) == value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("a\rb\x08", r"a\x0db\x08"),
        ("caf\udce9", r"caf\xe9"),
        ("gpj.\u202eexe", r"gpj.\u202eexe"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
    ],
)
def test_control_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    assert terminal.clean(text) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("\x1b[31mred\x1b[0m and \x1b[1;38:5:9mbold", "\x1b[31mred\x1b[0m and \x1b[1;38:5:9mbold\x1b[0m"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]52;c;bHM=\x1b\\text", "text"),
        ("\x1b[2J\x1b[1;1H\x1b[?25ltext", "text"),
        ("\x1bc\x1bP1$r\x9c", r"\x1bc\x1bP1$r\x9c"),
        (f"\x1b[{'1;' * 40}m", ""),
    ],
)
def test_colors_of_a_log_stay_and_other_sequences_do_not(line: str, shown: str) -> None:
    assert terminal.colored(line) == shown


def through_door(text: str, encoding: str = "utf-8") -> bytes:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding)
    click.echo(text, file=Door(stream), color=True)
    stream.flush()
    return raw.getvalue()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_no_encoding_of_the_terminal_leads_around_the_door(encoding: str) -> None:
    written = through_door(f"caf\xe9 \u4e00 {EVERY_CONTROL}", encoding)
    assert controls(written.decode(encoding)) == set()
    assert through_door("\u4e00", "ascii") == b"\\u4e00\n"


def test_errors_of_calls_of_python_programs_have_no_control_characters() -> None:
    assert CallError("Failed", "\x1b]0;a\x07").document["message"] == r"\x1b]0;a\x07"


def test_output_of_a_call_of_a_python_program_passes_the_door_with_the_colors_of_logs() -> None:
    found = CommandOutput()
    with command_output.thread_streams():
        command_output._OUTPUTS.present = found
        click.echo("\x1b]0;a\x07")
        terminal.write_log_line("[a] ", "\x1b[31mred\x07")
        command_output._OUTPUTS.present = None
    assert found.out == "\\x1b]0;a\\x07\n[a] \x1b[31mred\\x07\x1b[0m\n"


def test_bytes_and_print_pass_the_door(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with terminal.doors():
        click.echo(b"\x1b]0;a\x07\x9b")
        print("\x1b]0;b\x07")
        print("\x1b]0;c\x07", file=sys.stderr)
        sys.stdout.buffer.write(b"\x1b]0;d\x07\n")
        sys.stdout.writelines(["\x1b]0;e\x07\n"])
        sys.stdout.flush()
    said = capfdbinary.readouterr()
    assert b"\x1b" not in said.out + said.err
    assert [said.out.count(letter) for letter in (b"0;a", b"0;b", b"0;d", b"0;e")] == [1, 1, 1, 1]
    assert not isinstance(sys.stdout, Door)
