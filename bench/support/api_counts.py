"""What an API server says it was asked, from the counters it offers Prometheus.

One rule: pure; the embedded server and kube-apiserver count under the same name.
"""

import re
from collections import Counter
from collections.abc import Mapping

WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION")
_VERBS = {"CREATE": "POST", "UPDATE": "PUT"}
"""What the embedded server calls a verb, if kube-apiserver calls it otherwise."""
_COUNT = re.compile(r"^apiserver_request_total\{(.*)\} ([\d.e+]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def by_code(text: str) -> Counter[str]:
    """Requests as "VERB resource/subresource code"; the embedded server tells no code."""
    found: Counter[str] = Counter()
    for labels, count in _COUNT.findall(text):
        said = dict(_LABEL.findall(labels))
        # The embedded server calls a resource by its definition's name, plural.group.
        plural = said["resource"].partition(".")[0]
        what = f"{plural}/{said['subresource']}" if said["subresource"] else plural
        found[f"{_VERBS.get(said['verb'], said['verb'])} {what} {said.get('code', '')}"] += int(float(count))
    return found


def by_verb(requests: Mapping[str, int]) -> Counter[str]:
    """The same without the code."""
    found: Counter[str] = Counter()
    for what, count in requests.items():
        found[what.rpartition(" ")[0]] += count
    return found


def refused(requests: Mapping[str, int]) -> dict[str, int]:
    """Those whose answer was not 2xx, most first. A watch that a client ended has code 0."""
    found = {what: count for what, count in requests.items() if what.rpartition(" ")[2][:1] not in ("2", "0", "")}
    return dict(Counter(found).most_common())


def writes(requests: Mapping[str, int]) -> int:
    """How many of them asked for a change."""
    return sum(count for what, count in requests.items() if what.partition(" ")[0] in WRITES)


def per_job(requests: Mapping[str, int], jobs: int) -> dict[str, float]:
    """By verb, for each job; what is rarer than one in a hundred jobs is left out."""
    common = by_verb(requests).most_common()
    return {what: round(count / jobs, 3) for what, count in common if count * 100 > jobs}
