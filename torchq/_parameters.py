"""The parameters of a call as JSON, and their check against the table of calls.

One rule: the client and the program both check parameters. A caller learns of a wrong value before anything is sent,
and the program trusts no caller.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from torchq._errors import Invalid
from torchq._table import FOLDER, JOB, PARAMETER_KINDS, PYTHON_FOLDER, Call, Parameter
from torchq._values import as_json


def given(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of a method, which are its `locals()` at its first line, without `self`."""
    return {name: value for name, value in arguments.items() if name != "self"}


def as_params(call: Call, given: Mapping[str, object]) -> dict[str, Any]:
    """Return the parameters to send. A parameter that is None is not sent. Raises Invalid for a value of a wrong
    kind."""
    params = {name: as_json(value, name) for name, value in given.items() if value is not None}
    if FOLDER in call.sends:
        params[FOLDER.name] = _folder()
    if PYTHON_FOLDER in call.sends:
        params[PYTHON_FOLDER.name] = os.path.dirname(sys.executable or "")
    for each in call.parameters:
        if each.kind == "path" and each.name in params:
            params[each.name] = os.path.abspath(params[each.name])
    check(call, params)
    return params


def check(call: Call, params: Mapping[str, Any]) -> None:
    """Raise Invalid, naming the parameter, for a parameter that is unknown, missing or of a wrong kind."""
    known = {each.name: each for each in expected(call)}
    for name, value in params.items():
        parameter = known.get(name)
        if parameter is None:
            raise Invalid(f"{call.method} has no parameter {name}; it has {', '.join(known) or 'none'}")
        _check_kind(parameter, value)
    for name, parameter in known.items():
        if parameter.default is None and name not in params:
            raise Invalid(f"{call.method}: {name} is missing")


def expected(call: Call) -> Iterator[Parameter]:
    """Yield the parameters of a call as they are sent."""
    if call.method.startswith("job."):
        yield JOB
    yield from call.parameters
    yield from call.sends


def _check_kind(parameter: Parameter, value: Any) -> None:
    kind = PARAMETER_KINDS[parameter.kind]
    is_right = isinstance(value, kind.json) and not (isinstance(value, bool) and bool not in kind.json)
    if is_right and kind.items and isinstance(value, (list, dict)):
        items = value.values() if isinstance(value, dict) else value
        is_right = all(isinstance(each, kind.items) for each in items)
    if not is_right:
        # The content of a list or map is not shown: it may have a secret.
        shown = type(value).__name__ if isinstance(value, (list, dict)) else repr(value)
        raise Invalid(f"{parameter.name}: must be {kind.words}, not {shown}")


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise Invalid(f"the current folder no longer exists ({error.strerror}): change to another one") from error
