"""The content of a row of the table of calls: a call, its parameters, and the kinds of values in them.

One rule: a kind says how Python annotates a value and how JSON has it; both sides of the pipe read the kinds from this
module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Kind:
    """A kind of value in Python and in JSON."""

    annotation: str
    json: tuple[type, ...]
    items: tuple[type, ...] = ()
    """The types of the items of a list, or of the values of a map; empty if any is right."""
    words: str = ""
    """What messages call such a value."""


PARAMETER_KINDS: Mapping[str, Kind] = {
    "text": Kind("str", (str,), words="text"),
    "path": Kind("str | os.PathLike[str]", (str,), words="a path"),
    "flag": Kind("bool", (bool,), words="true or false"),
    "whole": Kind("int", (int,), words="a whole number"),
    "nodes": Kind("int | tuple[int, int]", (int, list), (int,), words="a whole number, or the least and the most"),
    "quantity": Kind("float | str", (int, float, str), words="a number, or a quantity as in 100m"),
    "number": Kind("float", (int, float), words="a number"),
    "words": Kind("str", (list,), (str,), words="a list of texts"),
    "texts": Kind("Iterable[str]", (list,), (str,), words="a list of texts"),
    "command": Kind("Sequence[str]", (list,), (str,), words='a list of texts, as in ["python", "train.py"]'),
    "map": Kind("Mapping[str, str]", (dict,), (str,), words="a map of texts"),
    "roles": Kind("Mapping[str, Role]", (dict,), (dict,), words="a map of roles"),
    "documents": Kind("Iterable[Mapping[str, Any]]", (list,), (dict,), words="a list of maps"),
    "jobs": Kind("Iterable[Job | str]", (list,), (str,), words="a list of jobs or handles"),
}
"""`words` are the positional arguments of a call that takes any number of them."""

ANSWER_KINDS: Mapping[str, str] = {
    "nothing": "None",
    "text": "str",
    "texts": "list[str]",
    "place": "int | None",
    "document": "dict[str, Any]",
    "documents": "list[dict[str, Any]]",
    "result": "Any",
    "job": "Job",
    "jobs": "list[Job]",
    "ending": "Ending",
    "endings": "list[Ending]",
    "log line": "LogLine",
}
"""The annotation of each kind of answer; of a stream, that of an item."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a call."""

    name: str
    kind: str
    default: str | None = None
    """The default as Python writes it; None: the parameter has to be given. The default `None` is not sent."""
    first: bool = False
    """Whether it may be given without its name."""
    note: str = ""
    """What completes the sentence that begins with the parameter's name."""


@dataclass(frozen=True)
class Call:
    """A call, as both clients offer it and `torchq rpc` answers it."""

    name: str
    parameters: tuple[Parameter, ...]
    answer: str
    """The kind of the answer, or of each item of a stream."""
    summary: str
    more: tuple[str, ...] = ()
    """The lines of the description after the summary."""
    stream: bool = False
    repeatable: bool = False
    """Whether the call may be sent again if `torchq rpc` ends in the middle of it."""
    long: bool = False
    """Whether the call may wait for a job."""
    attribute: bool = False
    """Whether Python writes it without parentheses."""
    sends: tuple[Parameter, ...] = ()
    """What is sent along without being given: the present folder, the folder of this Python."""
    method: str = ""
    """The name on the wire."""


FOLDER = Parameter("folder", "path")
"""The present folder."""
PYTHON_FOLDER = Parameter("python_folder", "text")
"""The folder of the Python of the caller."""
JOB = Parameter("job", "text")
"""The handle of the job, which every call of a job sends."""


def as_map(prefix: str, calls: Iterable[Call]) -> Mapping[str, Call]:
    """Return the calls by their names on the wire, which begin with `prefix`."""
    return {prefix + call.name: replace(call, method=prefix + call.name) for call in calls}
