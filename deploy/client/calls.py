"""Writes the methods of both clients from the table of calls: `python -m deploy.client`.

One rule: a method of `torchq.aio` is the method of `torchq` with `await` before it; nothing is written by hand twice.
"""

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torchq._calls import OF_CLIENT, OF_JOB
from torchq._table import ANSWER_KINDS, PARAMETER_KINDS, Call, Parameter

FOLDER = Path(__file__).parents[2] / "torchq"
WIDTH = 120


@dataclass(frozen=True)
class Flavour:
    """How the methods of a client are written."""

    module: str
    base: str
    title: str
    iterator: str
    define: str
    wait: str

    @property
    def text(self) -> str:
        """The whole module."""
        parts = [
            f'''"""{self.title}

One rule: written by `python -m deploy.client` from `torchq/_calls.py`; change that table instead.
"""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

import os
from collections.abc import {", ".join(sorted(("Iterable", "Mapping", "Sequence", self.iterator)))}
from typing import Any

{self._imports}
from torchq._values import Ending, LogLine, Role


class Job({self.base}Job):
    """A job. Nothing ends it but its own end, `cancel` and `delete`: not the end of this program."""
''',
            *(self._method(call) for call in OF_JOB.values()),
            f'''
class Client({self.base}Calls):
    """The calls to a cluster."""

    def _make_job(self, handle: str) -> Job:
        return Job(handle, self)
''',
            *(self._method(call) for call in OF_CLIENT.values()),
        ]
        return "\n".join(parts)

    @property
    def _imports(self) -> str:
        client = f"from torchq._{self.base.lower()} import {self.base}Calls, {self.base}Job"
        return "\n".join(sorted((client, "from torchq._parameters import given")))

    def _method(self, call: Call) -> str:
        annotation = ANSWER_KINDS[call.answer]
        opening = "    @property\n" if call.attribute else ""
        define = "def" if call.stream else self.define
        answer = f"{self.iterator}[{annotation}]" if call.stream else annotation
        head = _signature(f"    {define} {call.name}", call.parameters, answer)
        return f"{opening}{head}\n{_docstring(call)}{self._body(call)}"

    def _body(self, call: Call) -> str:
        wait = "" if call.stream else self.wait
        arguments = "given(locals())" if call.parameters else "{}"
        asked = f'{wait}self._{"stream" if call.stream else "call"}("{call.method}", {arguments})'
        return f"        {asked}\n" if call.answer == "nothing" and not call.stream else f"        return {asked}\n"


SYNC = Flavour("_sync_calls.py", "Sync", "The client of threads, and its jobs.", "Iterator", "def", "")
ASYNC = Flavour(
    "_async_calls.py", "Async", "The client of asyncio, and its jobs.", "AsyncIterator", "async def", "await "
)
FLAVOURS = (SYNC, ASYNC)


def _signature(head: str, parameters: Iterable[Parameter], answer: str) -> str:
    first = [_parameter(each) for each in parameters if each.first]
    named = [_parameter(each) for each in parameters if not each.first]
    has_star = bool(named) and not any(each.startswith("*") for each in first)
    words = ["self", *first, *(["*"] if has_star else []), *named]
    line = f"{head}({', '.join(words)}) -> {answer}:"
    if len(line) <= WIDTH:
        return line
    inside = "".join(f"        {word},\n" for word in words)
    return f"{head}(\n{inside}    ) -> {answer}:"


def _parameter(parameter: Parameter) -> str:
    annotation = PARAMETER_KINDS[parameter.kind].annotation
    if parameter.kind == "words":
        return f"*{parameter.name}: {annotation}"
    if parameter.default is None:
        return f"{parameter.name}: {annotation}"
    optional = " | None" if parameter.default == "None" else ""
    return f"{parameter.name}: {annotation}{optional} = {parameter.default}"


def _docstring(call: Call) -> str:
    notes = " ".join(f"`{each.name}` {each.note}." for each in call.parameters if each.note)
    details = " ".join(filter(None, [*call.more, notes]))
    if not details:
        return f'        """{call.summary}"""\n'
    wrapped = textwrap.fill(details, WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return f'        """{call.summary}\n\n{wrapped}\n        """\n'


def write() -> None:
    """Write both modules."""
    for flavour in FLAVOURS:
        (FOLDER / flavour.module).write_text(flavour.text)
