"""A function call as it is stored in a variable of the job."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchq._errors import Invalid
from torchq._functions.call import FunctionCall, parse

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(TEXT), st.dictionaries(TEXT, TEXT | st.integers(-9, 9)), TEXT)
def test_a_call_comes_back_as_it_was(arguments: list[str], keywords: dict[str, Any], source: str) -> None:
    call = FunctionCall(arguments, keywords, ["src", "."], "src/train.py", source)
    assert parse(call.as_text()) == call


def test_kubernetes_finds_nothing_to_expand() -> None:
    text = FunctionCall(["$(RANK) $$ costs"]).as_text()
    assert "$" not in text
    assert parse(text).arguments == ["$(RANK) $$ costs"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (FunctionCall([0, (1, 2)]), "argument 2: tuple is not JSON: give a list"),
        (FunctionCall([], {"model": object()}), "argument model: object is not JSON"),
        (FunctionCall(["x" * 70_000]), "the call has 70,.* bytes, and at most 65,536 go: write the data to a file"),
        (FunctionCall(source="x" * 70_000), "move what the function needs from the notebook to a module"),
    ],
)
def test_what_cannot_go_is_refused(call: FunctionCall, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        call.as_text()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"arguments": 3}', "[" * 100_000])
def test_a_text_that_is_no_call_is_invalid(text: str) -> None:
    with pytest.raises(Invalid, match="TORCHQ_CALL: is not a call"):
        parse(text)
