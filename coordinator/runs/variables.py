"""The environment variables of a run: their names, their values, and which of them look like secrets.

One rule: a value that a manifest holds can be read by everybody who can read the job, so a manifest holds no secret.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from coordinator.runs.errors import InvalidRun

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OBJECT = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_COMMENT = re.compile(r"\s#")
_KEY = re.compile(r"[-._A-Za-z0-9]+")
_WORDS = frozenset(
    {"TOKEN", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "APIKEY", "PAT"}
)
_KEYS = frozenset({"API", "ACCESS", "PRIVATE", "SECRET", "AUTH", "ENCRYPTION", "SIGNING", "ACCOUNT"})
_HARMLESS = frozenset({"PAD", "EOS", "BOS", "UNK", "SEP", "CLS", "MASK", "SPECIAL"})
"""Words before TOKEN in the names of variables about text."""
_PATHS = frozenset({"GOOGLE_APPLICATION_CREDENTIALS"})


class SecretKey(NamedTuple):
    """A key of a Secret."""

    secret: str
    key: str


def looks_secret(name: str) -> bool:
    """Return whether a variable looks like a secret by its name: WANDB_API_KEY does, EOS_TOKEN does not."""
    *_, before, last = ["", *name.upper().split("_")]
    if name.upper() in _PATHS or (last == "TOKEN" and before in _HARMLESS):
        return False
    return last in _WORDS or (last == "KEY" and before in _KEYS)


def check_plain(variables: Mapping[str, str], field: str) -> dict[str, str]:
    """Return variables with plain values. Raises InvalidRun for a name that is not valid, or that looks like a
    secret."""
    for name in variables:
        _check_name(name, field)
        if looks_secret(name):
            raise InvalidRun(
                f"{field}.{name}: looks like a secret, and everybody who can read the job would see its value: have it "
                f"put into a Secret (kubectl create secret generic NAME --from-literal={name.lower()}=VALUE) and give "
                f"--secret-env {name}=NAME/{name.lower()}"
            )
    return dict(variables)


def parse_secrets(variables: Mapping[str, str], field: str) -> dict[str, SecretKey]:
    """Return variables with values of Secrets, each written as SECRET/KEY. Raises InvalidRun."""
    found = {}
    for name, text in variables.items():
        _check_name(name, field)
        secret, slash, key = text.partition("/")
        if not slash or not _OBJECT.fullmatch(secret) or not _KEY.fullmatch(key):
            # The text may be the secret itself, so it is not repeated.
            raise InvalidRun(
                f"{field}.{name}: must be SECRET/KEY, the name of a Secret of the namespace and one of its keys"
            )
        found[name] = SecretKey(secret, key)
    return found


def _check_name(name: str, field: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidRun(f"{field}: {name!r} is not the name of a variable: letters, digits and _, no digit first")


def literal(text: str) -> str:
    """Return a text that a container gets as it is: Kubernetes replaces $(NAME) by a variable, and $$ by one dollar."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def parse_assignments(lines: Mapping[str, str], field: str) -> dict[str, str]:
    """Return variables written as NAME=VALUE, with the place of each variable. Raises InvalidRun with the place."""
    found = {}
    for place, line in lines.items():
        name, equals, value = line.partition("=")
        if not equals:
            raise InvalidRun(f"{place}: {name!r} is not {field}")
        found[name.strip()] = value
    return found


class EnvFile(NamedTuple):
    """The variables of a file."""

    variables: dict[str, str]
    notes: list[str]
    """What in the file may mean something else than it says."""


def parse_file(text: str, source: str) -> EnvFile:
    """Return the variables of a file of lines NAME=VALUE. Blank lines, comments, `export` and quotes are understood.

    Raises InvalidRun with the file and the line. Text after ` # ` belongs to the value, as for docker, and is noted.
    """
    lines = {
        f"{source}, line {number}": line.strip().removeprefix("export ")
        for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    }
    found, notes = {}, []
    for place, line in lines.items():
        for name, text_of_value in parse_assignments({place: line}, "NAME=VALUE").items():
            _check_name(name, place)
            value = text_of_value.strip()
            is_quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
            found[name] = value[1:-1] if is_quoted else value
            if found[name] == value and _COMMENT.search(value):
                notes.append(
                    f"{place}: the value of {name} has all of the line, also what looks like a comment: {value}"
                )
    return EnvFile(found, notes)
