"""Requests to an API server, from the counters that it exposes for Prometheus.

One rule: pure. The embedded server and kube-apiserver use the same name for the counter.
"""

import re
from collections import Counter
from collections.abc import Mapping

WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION")
_VERBS = {"CREATE": "POST", "UPDATE": "PUT"}
"""The verb of kube-apiserver -> the verb of the embedded server, where they differ."""
_COUNT = re.compile(r"^apiserver_request_total\{(.*)\} ([\d.e+]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def by_code(text: str) -> Counter[str]:
    """Return the requests by "VERB resource/subresource code". The embedded server gives no code."""
    counts: Counter[str] = Counter()
    for labels, count in _COUNT.findall(text):
        values = dict(_LABEL.findall(labels))
        # The embedded server labels a resource with the name of its definition, plural.group.
        plural = values["resource"].partition(".")[0]
        path = f"{plural}/{values['subresource']}" if values["subresource"] else plural
        counts[f"{_VERBS.get(values['verb'], values['verb'])} {path} {values.get('code', '')}"] += int(float(count))
    return counts


def by_verb(requests: Mapping[str, int]) -> Counter[str]:
    """Return the requests by "VERB resource/subresource"."""
    counts: Counter[str] = Counter()
    for what, count in requests.items():
        counts[what.rpartition(" ")[0]] += count
    return counts


def failures(requests: Mapping[str, int]) -> dict[str, int]:
    """Return the requests whose answer was not 2xx, most frequent first. A watch that a client ended has code 0."""
    counts = {what: count for what, count in requests.items() if what.rpartition(" ")[2][:1] not in ("2", "0", "")}
    return dict(Counter(counts).most_common())


def writes(requests: Mapping[str, int]) -> int:
    """Return the number of requests that write."""
    return sum(count for what, count in requests.items() if what.partition(" ")[0] in WRITES)


def per_job(requests: Mapping[str, int], jobs: int) -> dict[str, float]:
    """Return the requests per job by verb. Requests with less than one per hundred jobs are left out."""
    common = by_verb(requests).most_common()
    return {what: round(count / jobs, 3) for what, count in common if count * 100 > jobs}
