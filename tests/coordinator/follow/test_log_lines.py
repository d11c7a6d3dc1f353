"""Lines of output: put together from pieces, cut if too long, marked, and never delivered twice."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.follow import log_lines
from coordinator.follow.log_lines import LONGEST, STATE, LineSplitter, LineStates, LogLine, Overlap, RawLine

PIECE = 64 * 1024


def split(text: bytes, cuts: Sequence[int] = ()) -> list[RawLine]:
    """Return the lines of a text that arrives in pieces."""
    splitter, found = LineSplitter(), []
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        found += splitter.split(text[begin:end])
    rest = splitter.rest()
    return [*found, *([] if rest is None else [rest])]


@given(
    st.one_of(st.binary(max_size=60), st.text("\n\ra", max_size=60).map(str.encode)),
    st.lists(st.integers(0, 60), max_size=5),
)
def test_lines_do_not_depend_on_the_pieces_in_which_they_come(text: bytes, cuts: list[int]) -> None:
    assert split(text, sorted(min(cut, len(text)) for cut in cuts)) == split(text)
    assert b"".join(line.content + line.mark for line in split(text)) == text


def test_a_line_of_a_gibibyte_takes_no_more_memory_than_its_first_bytes() -> None:
    splitter = LineSplitter()
    piece = b"x" * PIECE
    for _ in range((1 << 30) // PIECE):
        assert list(splitter.split(piece)) == []
        assert len(splitter._state) <= LONGEST + 64
    (line,) = splitter.split(b"\n")
    assert (len(line.content), line.length) == (LONGEST, 1 << 30)
    assert line.text.endswith("x [torchq: cut, the line has 1073741824 bytes]")


@pytest.mark.parametrize(
    ("line", "content", "position", "time"),
    [
        (b"@12 2026-01-01T00:00:00.5Z loss 1", b"loss 1", 12, "2026-01-01T00:00:00.5Z"),
        (b"2026-01-01T00:00:00.123456789+02:00 loss 1", b"loss 1", None, "2026-01-01T00:00:00.123456789+02:00"),
        (b"@0 2026-01-01T00:00:00Z ", b"", 0, "2026-01-01T00:00:00Z"),
        (b"loss 1", b"loss 1", None, None),
    ],
)
def test_the_position_and_the_time_are_taken_off_a_line(
    line: bytes, content: bytes, position: int | None, time: str | None
) -> None:
    (found,) = split(line + b"\n")
    assert (found.content, found.position, found.time, found.length) == (content, position, time, len(content))


def deliver(answers: Sequence[Sequence[bytes]]) -> list[str]:
    """Return the lines that are delivered from several answers. Each answer begins again at an earlier line."""
    overlap, found = Overlap(), []
    for answer in answers:
        overlap.begin_answer()
        for line in split(b"".join(each + b"\n" for each in answer)):
            is_new, removed = overlap.admit(line)
            found += [f"-{removed}"] * bool(removed) + [line.text] * is_new
    return found


def positioned(texts: Sequence[str]) -> Iterator[bytes]:
    position = 0
    for text in texts:
        yield f"@{position} 2026-01-01T00:00:01Z {text}".encode()
        position += len(text.encode()) + 1


def timed(texts: Sequence[str], times: Sequence[int]) -> list[bytes]:
    return [f"2026-01-01T00:00:00.{time:09d}".rstrip("0").encode() + b"Z " + text.encode()
            for text, time in zip(texts, times, strict=True)]  # fmt: skip


CUTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=5)
TEXTS = st.lists(st.sampled_from(["", ".", "a", "bb", "\ra\rb"]), min_size=1, max_size=12)


@given(TEXTS, CUTS, st.data())
def test_every_line_comes_once_however_often_the_connection_is_lost(
    texts: list[str], cuts: list[tuple[int, int]], data: st.DataObject
) -> None:
    times = sorted(data.draw(st.lists(st.integers(1, 4), min_size=len(texts), max_size=len(texts))))
    for lines in (list(positioned(texts)), timed(texts, times)):
        answers, seen = [], 0
        for back, forth in [*cuts, (0, len(texts))]:
            begin = max(0, seen - back)
            # A server sends all lines of a point of time, if a client requests the lines since then.
            while lines is not None and begin and times[begin - 1] == times[min(begin, len(times) - 1)]:
                begin -= 1
            seen = max(seen, min(len(texts), begin + forth))
            answers.append(lines[begin:seen])
        assert deliver(answers) == [state for text in texts for state in text.split("\r")]


def test_output_that_was_removed_in_between_is_counted() -> None:
    lines = list(positioned(["one", "two", "three"]))
    assert deliver([lines[:1], lines[2:]]) == ["one", "-4", "three"]
    assert deliver([lines[1:]]) == ["-4", "two", "three"]


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000_000),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T00:00:01.000000001Z", 1_000_000_001),
        ("1970-01-01T02:00:01+02:00", 1_000_000_000),
        ("1970-13-01T00:00:01Z", 0),
        ("", 0),
        ("yesterday", 0),
    ],
)
def test_times_are_compared_to_the_nanosecond(time: str, expected: int) -> None:
    assert log_lines.nanoseconds(time) == expected


def shown(output: bytes, states: log_lines.States = "last") -> list[str]:
    collapsing = LineStates(states)
    lines = [LogLine("master-0", line.text, is_over=line.mark != STATE) for line in split(output)]
    return [line.text for line in [*collapsing.collapse(lines), *collapsing.rest()]]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (b"\r 1%\r 50%\r100%\nloss 1\n", ["100%", "loss 1"]),
        (b" 1%\r 50%\r", [" 50%"]),  # killed
        (b"\r 1%\r 5", [" 5"]),
        (b"one\r\ntwo\r\n\r\n", ["one", "two", ""]),
        (b"\r 1%\r100%\r    \repoch 0\n", ["epoch 0"]),  # a bar that erases itself
        (b"\r 1%\r100%\r    \r\n", ["100%"]),
        (b"\n\n", ["", ""]),
        (b"one\n[rank0]: torchq-result-part: 8d2d47eaf176ea9d 0 {\ntwo\n", ["one", "two"]),
        (b"\r" * 3 + b"x" * LONGEST + b"\rend\n", ["end"]),
    ],
)
def test_a_line_is_the_last_of_its_states_that_has_a_text(output: bytes, expected: list[str]) -> None:
    assert shown(output) == expected
    assert shown(output, "all") == output.decode().replace("\r", "\n").removesuffix("\n").split("\n")


def test_newest_state_is_that_of_a_line_without_an_end() -> None:
    splitter, found = LineSplitter(), []
    for piece in (b"@0 2026-01-01T00:00:01Z loss", b"\n@5 2026-01-01T00:00:02Z \r 1%", b"\r 2", b"%\r", b"100%\n"):
        splitter.split(piece)
        found.append(None if splitter.newest is None else (splitter.newest.text, splitter.newest.position))
    assert found == [None, (" 1%", 6), (" 2", 10), (" 2%", 10), None]
