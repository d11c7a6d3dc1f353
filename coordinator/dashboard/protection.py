"""Which requests are answered, and what browsers may do with the answers.

One rule: closed by default. A page may load what this server sends, and nothing else may show the page.
"""

import ipaddress
from collections.abc import Collection, Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

HEADERS = MappingProxyType(
    {
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        # No other site gets a referrer. Without one at all, browsers would not say that a form comes from our own page.
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
        "Server": "torchq",
    }
)
"""The headers of every answer."""
STATIC_CACHE = "private, max-age=31536000, immutable"
"""For files whose address has the version of torchq."""


def is_own_origin(headers: Mapping[str, str]) -> bool:
    """Return whether a request that changes something, or opens a stream, comes from a page of this server."""
    origin = headers.get("Origin", "")
    if not origin:
        return False
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    is_downgraded = is_over_tls(headers) and parts.scheme != "https"
    return parts.netloc.lower() == headers.get("Host", "").lower() and not is_downgraded


def is_for_host(host: str, names: Collection[str]) -> bool:
    """Return whether the Host header of a request names one of some hosts; without names, any host fits."""
    try:
        return not names or (urlsplit(f"//{host}").hostname or "").lower() in names
    except ValueError:
        return False


def is_over_tls(headers: Mapping[str, str]) -> bool:
    """Return whether a browser has asked over TLS, as the proxy in front says."""
    return headers.get("X-Forwarded-Proto", "").partition(",")[0].strip().lower() == "https"


def client_address(headers: Mapping[str, str], peer: str) -> str:
    """Return the address that has asked, as far as wrong tokens are counted: as the nearest proxy says, else the peer.
    Of an IPv6 address, it is the network of one customer."""
    told = headers.get("X-Forwarded-For", "").rpartition(",")[2].strip() or peer
    try:
        address = ipaddress.ip_address(told)
    except ValueError:
        return "an unknown address"
    return str(address) if address.version == 4 else str(ipaddress.ip_network(f"{address}/64", strict=False))


def comes_from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Return whether a page of another site leads here. Browsers then keep our cookie to themselves."""
    return headers.get("Sec-Fetch-Site", "") in ("cross-site", "same-site") and headers.get("Sec-Fetch-Mode") == (
        "navigate"
    )


def own_path(text: str) -> str:
    """Return a text as an address of this server to go to after a login; the first page if it is none."""
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() and len(text) <= 2000
    return text if is_own and not text.startswith(("/login", "/logout", "/open")) else "/"
