"""Which files look like a secret, by their names and by the beginning of their content.

One rule: a pattern `!NAME` in .torchqignore includes such a file again, so a name may be suspected too early.
"""

import re
from collections.abc import Iterable
from fnmatch import translate

_NAMES = (
    ".env",
    ".env.*",
    ".envrc",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.ppk",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".pypirc",
    ".htpasswd",
    ".git-credentials",
    ".dockercfg",
    ".dockerconfigjson",
    "kubeconfig",
    "kubeconfig.*",
    "*.kubeconfig",
    "*-kubeconfig",
    "*-kubeconfig.y*ml",
    "application_default_credentials.json",
    "client_secret*.json",
    "service-account*.json",
    "service_account*.json",
    "secrets.toml",
    "secrets.y*ml",
    "secrets.json",
    ".vault-token",
)
_SAMPLES = (".env.example", ".env.sample", ".env.template", ".env.dist")
_SSH_KEYS = frozenset({"id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"})
_FOLDERS = frozenset({".ssh", ".aws", ".azure", ".gnupg", ".kube"})
_PATHS = (".docker/config.json", ".config/gcloud/*", ".streamlit/secrets.toml")
_PRIVATE_KEY = re.compile(rb"\s*-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----")
_CONFIG_KIND = re.compile(rb"^kind:\s*[\"']?Config\b", re.MULTILINE)


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))


_SECRET_NAME = _any_of(_NAMES)
_SECRET_PATH = _any_of([*_PATHS, *(f"*/{path}" for path in _PATHS)])
HEAD_BYTES = 256 * 1024
"""The number of bytes at the beginning of a file that `in_content` looks at."""


def in_name(path: str) -> bool:
    """Return whether a path looks like the path of a secret. A key of SSH (`id_rsa`) does, `id_map.json` does not."""
    *folders, name = path.split("/")
    if not _FOLDERS.isdisjoint(folders):
        return True
    lowered = name.lower()
    if lowered in _SAMPLES:
        return False
    stem, dot, ending = lowered.partition(".")
    is_copy = stem in _SSH_KEYS and ending != "pub"  # such as id_rsa.old
    if lowered.startswith("id_") and (not dot or is_copy):
        return True
    return bool(_SECRET_NAME.match(lowered) or _SECRET_PATH.match(path))


def in_content(head: bytes) -> bool:
    """Return whether a file begins like a private key, or is a kubeconfig."""
    beginning = head[:HEAD_BYTES]
    is_kubeconfig = b"current-context:" in beginning and _CONFIG_KIND.search(beginning)
    return bool(is_kubeconfig or _PRIVATE_KEY.match(beginning))
