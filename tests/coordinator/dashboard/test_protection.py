"""Which requests are answered, and as whom their senders count."""

import pytest

from coordinator.dashboard import protection


@pytest.mark.parametrize(
    ("origin", "host", "proto", "is_own"),
    [
        ("http://127.0.0.1:8470", "127.0.0.1:8470", "", True),
        ("https://torchq.example.org", "torchq.example.org", "https", True),
        ("HTTPS://Torchq.Example.org", "torchq.example.ORG", "https", True),
        ("http://torchq.example.org", "torchq.example.org", "https", False),
        ("https://evil.example", "torchq.example.org", "https", False),
        ("http://127.0.0.1:9999", "127.0.0.1:8470", "", False),
        ("null", "127.0.0.1:8470", "", False),
        ("", "127.0.0.1:8470", "", False),
        ("http://[", "127.0.0.1:8470", "", False),
    ],
)
def test_only_a_page_of_this_server_may_post(origin: str, host: str, proto: str, is_own: bool) -> None:
    headers = {"Origin": origin, "Host": host, "X-Forwarded-Proto": proto}
    assert protection.is_own_origin(headers) == is_own


@pytest.mark.parametrize(
    ("host", "fits"),
    [
        ("torchq.example.org", True),
        ("TORCHQ.example.org:443", True),
        ("evil.example", False),
        ("", False),
        ("[", False),
    ],
)
def test_where_names_are_given_a_request_names_one_of_them(host: str, fits: bool) -> None:
    assert protection.is_for_host(host, {"torchq.example.org"}) == fits
    assert protection.is_for_host(host, ())


@pytest.mark.parametrize(
    ("forwarded", "peer", "address"),
    [
        ("", "10.1.2.3", "10.1.2.3"),
        ("1.1.1.1, 192.0.2.7", "10.1.2.3", "192.0.2.7"),
        ("", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "10.1.2.3", "2001:db8:1:2::/64"),
        ("made up\x1b[2J", "10.1.2.3", "an unknown address"),
        ("", "", "an unknown address"),
    ],
)
def test_wrong_tokens_count_for_the_address_that_the_nearest_proxy_names(
    forwarded: str, peer: str, address: str
) -> None:
    assert protection.client_address({"X-Forwarded-For": forwarded}, peer) == address


@pytest.mark.parametrize("path", ["/", "/jobs?namespace=a&page=2", "/queues/a%20b"])
def test_a_login_goes_on_to_the_page_that_was_asked_for(path: str) -> None:
    assert protection.own_path(path) == path


@pytest.mark.parametrize(
    "path",
    ["", "https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/\nSet-Cookie: a=b",
     "/logout", "/login", "/" + "a" * 3000],
)  # fmt: skip
def test_a_login_goes_nowhere_else(path: str) -> None:
    assert protection.own_path(path) == "/"
