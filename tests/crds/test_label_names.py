"""Lists of label names."""

import pytest

from crds import label_names


@pytest.mark.parametrize("name", ["rack", "topology.kubernetes.io/zone", "a/B_c.d-e", "x" * 63, "a" * 63 + ".b/c"])
def test_parse_list_accepts_names_of_labels(name: str) -> None:
    assert label_names.parse_list(f" {name} , rack,{name}") == tuple(dict.fromkeys((name, "rack")))


@pytest.mark.parametrize(
    "name", ["a b", "-a", "a-", "x" * 64, "/a", "a/", "a/b/c", "A.com/x", "a..b/c", "é", "a=b", "a\n", "y" * 254 + "/a"]
)
def test_parse_list_names_what_is_no_label(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a label"):
        label_names.parse_list(f"rack,{name}x" if name.endswith("\n") else f"rack,{name},zone")


def test_parse_list_of_nothing_is_empty() -> None:
    assert label_names.parse_list("") == label_names.parse_list("  ") == ()
    with pytest.raises(ValueError, match="'' is no name"):
        label_names.parse_list("rack,,zone")
