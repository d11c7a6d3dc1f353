"""The links of a job, which whoever may write the job has written."""

import json
from typing import Any

import pytest

from coordinator.dashboard.jobs import links
from coordinator.dashboard.jobs.links import Links
from crds import labels
from tests.coordinator.dashboard.jobs.scene import job


def read(value: Any) -> Links:
    text = value if isinstance(value, str) else json.dumps(value)
    return links.read(job(annotations={labels.LINKS: text}))


def test_names_and_http_addresses_become_links() -> None:
    given = {"tracker": "https://t.example.org/runs/1?a=b#c", "notebook": "http://[::1]:8888/x"}
    assert read(given) == Links(tuple(given.items()))
    assert links.read(job()) == Links()


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "JavaScript:alert(1)",
        " https://a.example.org",
        "java\nscript:alert(1)",
        "data:text/html,x",
        "//a.example.org",
        "/jobs",
        "https://",
        "https:a",
        "https://user:password@a.example.org",
        "https://a.example.org\\@b.example.org",
        "https://a.example.org/\u202e",
        "https://[",
        "https://a.example.org/" + "a" * 3000,
        "",
        7,
        None,
        ["https://a.example.org"],
    ],
)
def test_any_other_address_is_left_out_and_named(address: Any) -> None:
    assert read({"bad": address, "good": "https://a.example.org"}) == Links(
        (("good", "https://a.example.org"),), ("bad: not a whole http or https address",)
    )


@pytest.mark.parametrize("text", ["[]", "{", '"x"', "9" * 5000, "[" * 60_000, " "])
def test_what_is_no_object_of_names_is_said(text: str) -> None:
    found = read(text)
    assert found.shown == ()
    assert "is not a JSON object" in found.left_out[0]


def test_the_number_of_links_and_their_text_are_bounded() -> None:
    many = read({f"link {number}": "https://a.example.org" for number in range(1000)})
    assert (len(many.shown), many.left_out) == (links.MOST, ("980 more: a job has at most 20 links",))
    huge = read({f"link {number}": "https://a.example.org" for number in range(10_000)})
    assert huge.shown == ()
    assert "characters, more than" in huge.left_out[0]
