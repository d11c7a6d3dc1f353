"""Which page is at which path."""

import pytest

from coordinator.dashboard import routes


@pytest.mark.parametrize(
    ("path", "pattern", "names"),
    [
        ("/", "/", {}),
        ("/queues/a", "/queues/{name}", {"name": "a"}),
        ("/queues/a%2Fb%20c", "/queues/{name}", {"name": "a/b c"}),
        ("/jobs", "/jobs", {}),
        ("/jobs/team/one", "/jobs/{namespace}/{name}", {"namespace": "team", "name": "one"}),
        ("/usage", "/usage", {}),
    ],
)
def test_each_path_has_one_page(path: str, pattern: str, names: dict[str, str]) -> None:
    found = routes.find(path)
    assert found is not None
    assert (found[0].pattern, found[1]) == (pattern, names)
    assert [each.pattern for each in routes.ROUTES if each.match(path) is not None] == [pattern]


@pytest.mark.parametrize("path", ["", "//", "/queues", "/queues/", "/queues/a/b", "/jobs/team", "/Jobs", "/jobs\n"])
def test_nothing_is_at_other_paths(path: str) -> None:
    assert routes.find(path) is None
