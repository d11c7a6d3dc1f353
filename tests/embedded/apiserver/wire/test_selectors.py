"""Label and field selectors: parsing and matching."""

import pytest

from embedded.apiserver.status_errors import StatusError
from embedded.apiserver.storage.objects import StoredObject
from embedded.apiserver.wire import selectors


def _stored(labels: dict[str, str], **fields: str) -> StoredObject:
    return StoredObject("space", "name", "uid", 1, b"{}", labels, fields, (), False)


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ("", {}, True),
        ("a=1", {"a": "1"}, True),
        ("a==1", {"a": "1"}, True),
        ("a=1", {}, False),
        ("a=", {"a": ""}, True),
        ("a!=1", {}, True),
        ("a!=1", {"a": "1"}, False),
        ("a in (1, 2)", {"a": "2"}, True),
        ("a in (1,2)", {}, False),
        ("a notin (1,2)", {}, True),
        ("a notin (1,2)", {"a": "2"}, False),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        (" ! a ", {}, True),
        ("example.com/a-b=c_d.e", {"example.com/a-b": "c_d.e"}, True),
        ("a=1, b in (x,y) ,!c", {"a": "1", "b": "y"}, True),
        ("a=1,b in (x,y),!c", {"a": "1", "b": "y", "c": ""}, False),
        ("a>3", {"a": "4"}, True),
        ("a>3", {"a": "3"}, False),
        ("a<3", {"a": "x"}, False),
        ("a<3", {}, False),
        ("in in (in)", {"in": "in"}, True),
    ],
)
def test_label_selector_matches(selector: str, labels: dict[str, str], selected: bool) -> None:
    assert selectors.parse(selector, "", ()).matches(_stored(labels)) is selected


@pytest.mark.parametrize(
    "selector", ["a in x", "a in (x", "=a", "a b", "a=1=2", "a,,b", ",", "a>x", "(a)", "a in x,y)"]
)
def test_invalid_label_selector_is_refused(selector: str) -> None:
    with pytest.raises(StatusError) as caught:
        selectors.parse(selector, "", ())
    assert caught.value.code == 400


def test_field_selector_matches_or_is_refused() -> None:
    stored = _stored({}, **{"status.phase": "Running"})

    def selected(text: str) -> bool:
        return selectors.parse("", text, ("status.phase",)).matches(stored)

    assert selected("metadata.name=name,metadata.namespace=space,status.phase=Running")
    assert not selected("status.phase!=Running")
    for text in ("spec.x=1", "status.phase", "status.phase in (Running)"):
        with pytest.raises(StatusError):
            selected(text)
