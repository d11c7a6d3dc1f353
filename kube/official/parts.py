"""The parts of the official client that torchq uses, imported without its other parts.

One rule: the official client stays whole. Whoever imports `kubernetes` later gets the whole client, and its loaders
import the libraries of OAuth when a kubeconfig has to renew a token with them. Imported at once, both take longer than
most commands, which are done in a quarter of a second.
"""

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

PACKAGE = "kubernetes"
_OAUTH = "oauthlib.oauth2"


class _OAuthErrors(ModuleType):
    """The module `oauthlib`, of which the loader looks at one error after a renewal has failed."""

    @property
    def oauth2(self) -> ModuleType:
        """The library itself."""
        return importlib.import_module(_OAUTH)


def _open_oauth_session(*arguments: Any, **options: Any) -> Any:
    return importlib.import_module("requests_oauthlib").OAuth2Session(*arguments, **options)


def _stand_ins() -> Mapping[str, ModuleType]:
    """Return the modules that the parts import, each without its content."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None:
        raise ImportError(f"the package {PACKAGE} is not installed")
    sessions = ModuleType("requests_oauthlib")
    vars(sessions)["OAuth2Session"] = _open_oauth_session
    return {
        PACKAGE: importlib.util.module_from_spec(spec),  # it only imports parts, of which torchq uses few
        sessions.__name__: sessions,
        "oauthlib": _OAuthErrors("oauthlib"),
        _OAUTH: ModuleType(_OAUTH),
    }


@contextlib.contextmanager
def _without_the_rest() -> Iterator[None]:
    """Let the parts import nothing else of the package and no OAuth, as long as the block lasts."""
    added = {name: module for name, module in _stand_ins().items() if name not in sys.modules}
    sys.modules.update(added)
    try:
        yield
    finally:
        for name in added:
            del sys.modules[name]


with _without_the_rest():
    config: Any = importlib.import_module("kubernetes.config")
    """The loaders of kubeconfigs and of the accounts of pods."""
    rest: Any = importlib.import_module("kubernetes.client.rest")
    """The connections, with TLS and proxies as a configuration says."""
    Configuration: Any = importlib.import_module("kubernetes.client.configuration").Configuration
