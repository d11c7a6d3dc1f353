"""The header by which the API server knows this process.

One rule: a failed renewal says nothing of what the loader knows, which may be a token.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kube import errors

_CREDENTIALS_SECONDS = 1.0
"""The time after which the loader is asked for a newer token; loaders renew a token minutes before it expires."""
_REFUSED_SECONDS = 10.0
"""How often a refused header is obtained again at most: that may run a program of the user."""


class Authorization:
    """The present Authorization header. The official loader renews expiring tokens, one thread at a time.

    The loader is called at most once a second: each call sets its whole configuration again, which costs a quarter of
    a request's CPU time.
    """

    def __init__(self, configuration: Any, forget: Callable[[Any], object] = lambda _: None) -> None:
        """`forget` lets a configuration obtain a token at the next renewal that has not expired as far as it knows."""
        self._configuration, self._forget = configuration, forget
        self._lock = threading.Lock()
        self._header: str | None = None
        self._good_until = self._forgotten_until = 0.0

    def __call__(self) -> str | None:
        with self._lock:
            if time.monotonic() >= self._good_until:
                self._header = self._renew()
                self._good_until = time.monotonic() + _CREDENTIALS_SECONDS
            return self._header

    def refuse(self) -> None:
        """Note that the API server has refused the header: the next one has a token that was obtained again."""
        with self._lock:
            now = time.monotonic()
            if now >= self._forgotten_until:
                self._forget(self._configuration)
                self._good_until, self._forgotten_until = 0.0, now + _REFUSED_SECONDS

    def _renew(self) -> str | None:
        try:
            token: str | None = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except Exception as e:
            # A credential plugin or an OIDC library may raise any exception, with a token in its message.
            raise errors.Misconfigured(
                f"cannot renew the credentials: {type(e).__name__}; check the kubeconfig"
            ) from None
        return token.strip() if token else None


def read_token(file: Path, configuration: Any) -> None:
    """Take the newest token; the previous token stays in use while the file is being replaced."""
    with contextlib.suppress(OSError):
        if token := file.read_text().strip():
            configuration.api_key["BearerToken"] = f"Bearer {token}"
