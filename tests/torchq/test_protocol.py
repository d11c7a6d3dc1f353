"""The lines of the protocol, and the calls of a connection."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import torchq
from torchq._errors import KINDS, TorchqError, from_answer
from torchq._protocol import Dialog, Lines, encode


@given(st.lists(st.binary(max_size=20).map(lambda text: text.replace(b"\n", b"")), max_size=20), st.data())
def test_lines_are_the_same_however_they_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    reader = Lines()
    assert [line for piece in pieces for line in reader.feed(piece)] == lines


@given(st.text())
def test_any_text_is_one_line_of_ascii(text: str) -> None:
    line = encode({"method": text})
    assert line.count(b"\n") == 1
    assert line.isascii()


def test_an_answer_goes_to_its_call_only() -> None:
    dialog, got = Dialog(), list[tuple[str, str, object]]()
    numbers = [dialog.open("status", {}, lambda *news, name=name: got.append((name, *news)))[0] for name in "ab"]
    dialog.receive(encode({"id": numbers[1], "result": 2}))
    dialog.receive(encode({"id": 77, "result": 3}))
    dialog.receive(encode({"method": "item", "params": {"id": numbers[0], "value": 1}}))
    assert got == [("b", "answer", 2), ("a", "item", 1)]


def test_the_end_of_a_connection_reaches_open_calls_and_later_ones() -> None:
    dialog, got = Dialog(), list[object]()
    dialog.open("status", {}, lambda *news: got.append(news))
    dialog.end(lambda: TorchqError("ended"))
    assert [str(news[1]) for news in got] == ["ended"]  # type: ignore[index]
    with pytest.raises(TorchqError, match="ended"):
        dialog.open("status", {}, got.append)
    assert dialog.is_idle


def test_a_cancelled_call_gets_nothing_more() -> None:
    dialog, got = Dialog(), list[object]()
    number, _ = dialog.open("status", {}, lambda *news: got.append(news))
    assert dialog.cancel(number) is not None
    dialog.receive(encode({"id": number, "result": 2}))
    assert got == []
    assert dialog.cancel(number) is None


def test_every_kind_of_error_is_a_public_class() -> None:
    for name in KINDS:
        error = from_answer({"message": "m", "data": {"kind": name}})
        assert type(error) is getattr(torchq, name)
        assert str(error) == "m"
    assert type(from_answer({"message": "m", "data": {"kind": "New"}})) is TorchqError


def test_errors_are_those_that_python_programs_expect() -> None:
    assert issubclass(torchq.TimedOut, TimeoutError)
    assert issubclass(torchq.Invalid, ValueError)
    data = {"kind": "Failed", "outcome": "Cancelled", "reason": "PodFailed", "exitCode": 3}
    failed = from_answer({"message": "m", "data": data})
    assert isinstance(failed, torchq.Failed)
    assert (failed.outcome, failed.reason, failed.exit_code) == ("Cancelled", "PodFailed", 3)
