"""The variables of a run: names of secrets, files of variables, and values that reach the pod as they were written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.runs import variables
from coordinator.runs.errors import InvalidRun
from embedded.node.pods.container_environment import expand


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "hf_token", "TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "GITHUB_PAT", "APIKEY",
     "MY_SECRET", "SSH_PRIVATE_KEY", "NEPTUNE_API_TOKEN", "AZURE_STORAGE_ACCOUNT_KEY"],
)  # fmt: skip
def test_a_secret_is_known_by_its_name(name: str) -> None:
    assert variables.looks_secret(name)


@pytest.mark.parametrize(
    "name",
    ["SEED", "TOKENIZERS_PARALLELISM", "MAX_TOKENS", "EOS_TOKEN", "AWS_ACCESS_KEY_ID", "SORT_KEY", "KEY", "PATH",
     "SECRET_NAME", "GOOGLE_APPLICATION_CREDENTIALS", "", "_"],
)  # fmt: skip
def test_other_variables_are_no_secrets(name: str) -> None:
    assert not variables.looks_secret(name)


@given(st.text("$()AB x"))
def test_a_container_gets_a_value_as_it_was_written(text: str) -> None:
    assert expand(variables.literal(text), {"A": "1", "B": "2"}) == text


def test_a_value_without_references_is_kept_readable() -> None:
    assert variables.literal("costs $5, ${HOME}") == "costs $5, ${HOME}"


def test_a_file_of_variables_is_read() -> None:
    text = "# a comment\n\nA=1\nexport B = two words\nC='quoted'\nD=\"x\nE=a=b\n F =\n"
    assert variables.parse_file(text, "vars").variables == {
        "A": "1",
        "B": "two words",
        "C": "quoted",
        "D": '"x',
        "E": "a=b",
        "F": "",
    }


def test_a_line_without_a_value_is_named_with_its_place() -> None:
    with pytest.raises(InvalidRun, match=r"^vars, line 2: 'B' is not NAME=VALUE"):
        variables.parse_file("A=1\nB\n", "vars")


@pytest.mark.parametrize("name", ["MY VAR", "1ST", "A-B", "", "set A"])
def test_a_bad_name_in_a_file_is_named_with_file_and_line(name: str) -> None:
    with pytest.raises(InvalidRun, match=rf"^vars, line 3: '{name}' is not the name of a variable"):
        variables.parse_file(f"A=1\n\n{name}=2\n", "vars")


def test_a_byte_order_mark_is_no_part_of_the_first_name() -> None:
    assert variables.parse_file("\ufeffA=1\n", "vars") == ({"A": "1"}, [])


@pytest.mark.parametrize(
    ("line", "value", "noted"),
    [
        ("A=1 # one", "1 # one", True),
        ('A="1" # one', '"1" # one', True),
        ("A=1\t#one", "1\t#one", True),
        ("A='1 # one'", "1 # one", False),
        ("A=1#one", "1#one", False),
        ("A=#one", "#one", False),
        ("# A=1 # one", None, False),
    ],
)
def test_what_looks_like_a_comment_after_a_value_is_kept_and_noted(line: str, value: str | None, noted: bool) -> None:
    found = variables.parse_file(f"{line}\n", "vars")
    assert found.variables.get("A") == value
    assert [note.partition(": ")[0] for note in found.notes] == (["vars, line 1"] if noted else [])
