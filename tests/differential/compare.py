"""The comparison of two answers to the same call.

One rule: only the values listed below, which differ between any two clusters, are normalised. All else is compared.

Normalised: uids, resourceVersions (compared by their relation to earlier ones: the same, newer, unseen), timestamps
(compared by their presence), managedFields, page tokens, generated suffixes, words of `_TAILS`, and the fields that
differ according to the table of docs/embedded.md (`_DIFFERS`).
"""

import re
from dataclasses import dataclass, field
from typing import Any

from tests.differential.wire import Call, Reply

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_HEADERS = ("content-type", "warning", "retry-after", "allow")
_DIFFERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "CustomResourceDefinition": (("status",), ("metadata", "resourceVersion")),
    "Node": (("spec", "taints"), ("status", "daemonEndpoints"), ("status", "nodeInfo")),
}
"""Fields by kind that are not compared."""
LEVELS = ("code", "reason", "object", "events", "details", "causes", "headers", "message")


@dataclass
class Seen:
    """The resourceVersions that a server has returned, per object."""

    versions: dict[str, list[str]] = field(default_factory=dict)
    highest: int = 0

    def relation(self, key: str, version: str) -> str:
        """Return how a version relates to earlier versions of the same object."""
        if not version.isdigit():
            return f"odd {version!r}"
        known = self.versions.setdefault(key, [])
        if version in known:
            return "latest" if known[-1] == version else "older"
        newer = all(int(version) > int(other) for other in known)
        known.append(version)
        return "newer" if newer else "between"


@dataclass(frozen=True)
class Difference:
    """One way in which two answers differ."""

    level: str
    where: str
    embedded: Any
    real: Any

    def __str__(self) -> str:
        return f"{self.level} {self.where}: embedded {self.embedded!r}, real {self.real!r}"


def differences(call: Call, pair: tuple[Reply, Reply], seen: tuple[Seen, Seen]) -> list[Difference]:
    """Return all differences between the answers of the embedded server and the real server."""
    told = [_told(call, reply, known) for reply, known in zip(pair, seen, strict=True)]
    found: list[Difference] = []
    for level in LEVELS:
        found.extend(_walk(level, "", told[0].get(level), told[1].get(level)))
    return found


def _told(call: Call, reply: Reply, seen: Seen) -> dict[str, Any]:
    told: dict[str, Any] = {"code": _code(reply), "headers": _headers(reply)}
    if call.watches and reply.code == 200 and (not reply.text or reply.text.startswith('{"type"')):
        return {**told, "events": [_event(line, seen) for line in reply.lines() if line["type"] != "BOOKMARK"]}
    body = reply.parsed()
    if isinstance(body, dict) and body.get("kind") == "Status":
        return {**told, **_status(body)}
    return {**told, "object": _object(body, seen) if call.label != "unread" else None}


def _headers(reply: Reply) -> dict[str, Any]:
    chosen = {name: reply.headers[name] for name in _HEADERS if name in reply.headers}
    return {name: sorted(text.replace(" ", "").lower() for text in values) for name, values in chosen.items()}


def _event(line: dict[str, Any], seen: Seen) -> Any:
    shown = line["object"]
    if shown.get("kind") == "Status":
        return {"type": line["type"], **_status(shown)}
    return {"type": line["type"], "object": _object(shown, seen)}


def _code(reply: Reply) -> int:
    body = reply.parsed()
    return 400 if isinstance(body, dict) and _no_version(body) else reply.code


def _no_version(body: dict[str, Any]) -> bool:
    """Return whether an answer refuses a resourceVersion that is no number. The embedded server answers 400,
    kube-apiserver 500.
    """
    return body.get("kind") == "Status" and "strconv.ParseUint: parsing" in str(body.get("message"))


def _status(body: dict[str, Any]) -> dict[str, Any]:
    if _no_version(body):
        body = body | {"code": 400, "reason": "BadRequest"}
    details = dict(body.get("details") or {})
    causes = [
        (c.get("field", ""), c.get("reason", ""), _worded(c.get("message", ""))) for c in details.pop("causes", ())
    ]
    # kube-apiserver reports some causes twice: causes about paths of the scale subresource, and causes about formats.
    causes = [each for each in causes if not each[0].startswith(".") and "Checked value must be" not in each[2]]
    return {
        "reason": (body.get("status"), body.get("reason"), body.get("code")),
        "details": _plain(details),
        "causes": sorted(causes),
        # The message of an answer with causes is made from the causes, in the random order of a Go map.
        "message": "" if causes else _worded(body.get("message", "")),
    }


_TAILS = (
    (re.compile(r"Go struct field [\w.\[\]]+ of type .*"), "Go struct field"),  # Go's names of types
    (re.compile(r"(couldn't get version/kind; json parse error: ).*", re.DOTALL), r"\1"),  # a parser's own words
    (re.compile(r"error (converting YAML to JSON|parsing YAML|unmarshaling JSON).*", re.DOTALL), r"error \1"),
    (re.compile(r'( in scheme "[^"]+")'), ""),
    (re.compile(r"(accepted media types include|only the following media types are accepted): .*"), r"\1"),
    (re.compile(r"406: Not Acceptable.*|only the following media types are accepted.*", re.DOTALL), "not acceptable"),
    (re.compile(r"(continue key is not valid|error decoding patch|invalid resource version): .*", re.DOTALL), r"\1"),
    (re.compile(r"(Object 'Kind' is missing) in .*", re.DOTALL), r"\1"),
    (re.compile(r"^invalid continue token: "), ""),
    (re.compile(r'^\w+: (Invalid value: "[^"]*": )?(strconv\.Parse)'), r"\2"),  # the name of the parameter
    (re.compile(r'(patch: Invalid value: |^Invalid value: )("\{.*\}"|map\[.*\]): ', re.DOTALL), r"\1"),
    (re.compile(r"(it was previously negative\)).*", re.DOTALL), r"\1"),  # followed by a diff of two Go structs
    (re.compile(r"gen-(a{0,60}\.?)[a-z0-9]{5}"), r"gen-\1<5>"),
    (re.compile(r"(is registered for version \S+).*"), r"\1"),
)
"""Parts of messages that are left out because they describe Go and not the request."""


def _worded(text: str) -> str:
    for pattern, shown in _TAILS:
        text = pattern.sub(shown, text)
    text = _TIME.sub("<time>", _UUID.sub("<uid>", text))
    text = re.sub(r"(ResourceVersion in precondition: )\d+(, ResourceVersion in object meta: )\d+", r"\1<v>\2<v>", text)
    text = re.sub(r"(ResourceVersion in record \()\d+", r"\1<v>", text)
    return re.sub(r"(resource version: )\d+( \()\d+", r"\1<v>\2<v>", text)


def _object(body: Any, seen: Seen) -> Any:
    if not isinstance(body, dict):
        return body
    if str(body.get("kind", "")).endswith("List") and isinstance(body.get("items"), list):
        own = {**body["metadata"]}
        own["resourceVersion"] = bool(own.get("resourceVersion"))
        own["continue"] = bool(own.get("continue"))
        kind = body["kind"].removesuffix("List")
        return {**body, "metadata": own, "items": [_object({"kind": kind, **item}, seen) for item in body["items"]]}
    shown: dict[str, Any] = _plain({**body, **_versioned(body, seen)})
    for path in _DIFFERS.get(body.get("kind", ""), ()):
        _drop(shown, path)
    return shown


def _drop(value: dict[str, Any], path: tuple[str, ...]) -> None:
    """Remove a field, and its parents that are empty without it."""
    name, *rest = path
    if rest and isinstance(value.get(name), dict):
        _drop(value[name], tuple(rest))
    if not rest or not value.get(name):
        value.pop(name, None)


def _versioned(body: dict[str, Any], seen: Seen) -> dict[str, Any]:
    own = body.get("metadata")
    if not isinstance(own, dict) or "resourceVersion" not in own:
        return {}
    key = f"{body.get('kind')}/{own.get('namespace', '')}/{own.get('name', '')}/{own.get('uid')}"
    return {"metadata": {**own, "resourceVersion": seen.relation(key, own["resourceVersion"])}}


def _plain(value: Any, name: str = "") -> Any:
    match value:
        case dict():
            return {key: _plain(item, key) for key, item in value.items() if key != "managedFields"}
        case list():
            return [_plain(item) for item in value]
        case str() if name == "name" and len(value) > 6 and value.startswith("gen-"):
            return value[:-5] + "<5>"
        case str():
            return _worded(value)
        case _:
            return value


def _walk(level: str, where: str, left: Any, right: Any) -> list[Difference]:
    if isinstance(left, dict) and isinstance(right, dict):
        found = []
        for key in sorted(left.keys() | right.keys(), key=str):
            there = f"{where}.{key}" if where else str(key)
            found.extend(_walk(level, there, left.get(key, "<absent>"), right.get(key, "<absent>")))
        return found
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right) and level in {"object", "events"}:
        found = []
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            found.extend(_walk(level, f"{where}[{index}]", one, other))
        return found
    same = type(left) is type(right) and left == right
    return [] if same else [Difference(level, where, left, right)]
