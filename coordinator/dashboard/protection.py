"""Which requests are answered, and what browsers may do with the answers.

One rule: closed by default. A page may load what this server sends, and nothing else may show the page.
"""

from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

HEADERS = MappingProxyType(
    {
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
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
        return urlsplit(origin).netloc.lower() == headers.get("Host", "").lower()
    except ValueError:
        return False
