"""The objects of a run, as a dry run prints them.

One rule: what is printed can be submitted again, with `torchq submit` or `kubectl apply`, and gives the same run.
"""

import orjson
import yaml

from kube.api import Manifest

# The C version of the library: a job with its code may have megabytes.
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


LONGEST_REPEATED = 1_000
"""The most characters of a text that is written again, as the program that unpacks the code is not."""


class _Dumper(_DUMPER):  # type: ignore[misc, valid-type]
    """Writes texts of several lines, as programs are, as they are read. A long text that comes again is a reference to
    its first place; every other value is written in full."""

    def ignore_aliases(self, data: object) -> bool:
        return not (isinstance(data, str) and len(data) > LONGEST_REPEATED)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def format_objects(objects: list[Manifest], form: str) -> str:
    """Return objects as YAML documents, or as a list in JSON."""
    if form == "json":
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        return orjson.dumps(items, option=orjson.OPT_INDENT_2).decode()
    return "---\n".join(yaml.dump(each, Dumper=_Dumper, sort_keys=False, width=2**31 - 1) for each in objects).rstrip()
