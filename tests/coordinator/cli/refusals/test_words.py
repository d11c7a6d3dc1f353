"""The refusals of an API server in plain words: messages of Kubernetes' own validation and of torchq's rules."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.cli.refusals import words
from crds.schema import definitions
from kube.errors import FieldCause

SCHEMA = definitions.torchjob()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
FIELD = "spec.torchTaskSpecs.Master.numTasks"


def body(value: Any) -> dict[str, Any]:
    return {"spec": {"torchTaskSpecs": {"Master": {"numTasks": value}}}}


@pytest.mark.parametrize(
    ("message", "value", "expected"),
    [
        (f'Invalid value: "string": {FIELD} in body must be of type integer: "string"', "two",
         'must be a whole number, not the text "two"'),
        (f'Invalid value: "number": {FIELD} in body must be of type integer: "number"', 1.5,
         "must be a whole number, not 1.5"),
        (f'Invalid value: "array": {FIELD} in body must be of type object: "array"', [1], "must be a map, not a list"),
        (f"Invalid value: 0: {FIELD} in body should be greater than or equal to 1", 0, "must be at least 1, not 0"),
        (f"Invalid value: 5000: {FIELD} in body should be less than or equal to 1000", 5000,
         "must be at most 1000, not 5000"),
        (f"Invalid value: \"Q_Q\": {FIELD} in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'", "Q_Q",
         'must be lower-case letters, digits and hyphens, with no hyphen first or last, not the text "Q_Q"'),
        (f"Invalid value: 0: {FIELD} in body should have at least 1 properties", {}, "must have at least 1 entry"),
        ('Unsupported value: "never": supported values: "Always", "Never"', "never",
         'must be one of Always, Never, not "never"; did you mean Never?'),
        ("Too long: may not be more than 3 bytes", "abcd", "must have at most 3 characters; it has 4"),
        ("Required value", None, "is required"),
        ("Invalid value: every key must match ^[A-Za-z][A-Za-z0-9]{0,19}$", {},
         "each name must be 1 to 20 letters and digits, with a letter first"),
        # The words of torchq's own rules stay as they are, with and without the server's excerpt of the value.
        ('Invalid value: {"a":{"b":1}}: this task has no such phase', {}, "this task has no such phase"),
        ("Invalid value: numMinReplicas must not be greater than numMaxReplicas", 5,
         "numMinReplicas must not be greater than numMaxReplicas"),
        ("some other message", 1, "some other message"),
    ],
)  # fmt: skip
def test_a_message_says_what_would_be_right_and_what_there_is(message: str, value: Any, expected: str) -> None:
    assert words.plain(FieldCause(FIELD, message), body(value)) == expected


def test_the_value_is_left_out_where_the_object_is_not_known() -> None:
    message = f'Invalid value: "string": {FIELD} in body must be of type integer: "string"'
    assert words.plain(FieldCause(FIELD, message)) == "must be a whole number"


def test_what_says_nothing_about_a_field_is_left_out() -> None:
    name = "metadata.name"
    causes = (
        FieldCause(name, "Invalid value: \"A\": metadata.name in body should match '^[a-z]([-a-z0-9]*[a-z0-9])?$'"),
        FieldCause(name, 'Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case letters'),
        FieldCause("<nil>", "Invalid value: null: some validation rules were not checked because the object was inva"),
        FieldCause("<nil>", "Invalid value: null: the job is too large"),
    )
    found = words.plain_causes(causes)
    assert [cause.field for cause in found] == [name, ""]
    assert found[1].message == "the job is too large"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("spec.schedulngPolicy", "unknown field; did you mean schedulingPolicy?"),
        ("spec.torchTaskSpecs.Master.numtasks", "unknown field; did you mean numTasks?"),
        ("spec.torchTaskSpecs.Master.dependsOn[0].pase", "unknown field; did you mean phase?"),
        ("spec.zzz", "unknown field"),
        ("nowhere.else", "unknown field"),
    ],
)
def test_an_unknown_field_gets_the_known_one_of_the_nearest_name(path: str, expected: str) -> None:
    assert words.unknown_field(path, SCHEMA) == expected


def test_the_title_names_the_object_and_not_the_form_of_the_request() -> None:
    strict = 'TorchJob in version "v1alpha1" cannot be handled as a TorchJob: strict decoding error: unknown field "a"'
    assert words.title(f"job.yaml: {strict}") == "job.yaml: TorchJob has fields that do not exist:"
    assert words.title('TorchJob "a" is invalid: [spec.b: Required value, ...]') == 'TorchJob "a" is invalid:'
    assert words.title("something else") == "something else"


@given(st.text(), st.text(), st.recursive(st.none() | st.text() | st.integers(), st.lists))
def test_any_message_about_any_field_has_words(field: str, message: str, value: Any) -> None:
    assert isinstance(words.plain(FieldCause(field, message), {field: value}), str)
    assert isinstance(words.plain(FieldCause(field, f"Unsupported value: {message}"), value), str)
