"""The pages /metrics of the processes of a cluster, read as a Prometheus server reads them."""

import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]


class Pages:
    """The samples of some pages, added up over the pages."""

    def __init__(self, urls: Iterable[str], token: str = "") -> None:
        self.samples: Counter[tuple[str, Labels]] = Counter()
        for url in urls:
            request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"})
            with urllib.request.urlopen(request, timeout=10) as answer:
                text = answer.read().decode()
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    self.samples[sample.name, frozenset(sample.labels.items())] += sample.value

    def of_queue(self, queue: str) -> Mapping[str, float]:
        """Return the values of a queue's series, by name and the other labels; for histograms, only the counts."""
        found = {}
        for (name, labels), value in self.samples.items():
            others = dict(labels)
            if others.pop("queue", None) == queue and not name.endswith(("_bucket", "_sum")):
                found["/".join([name, *(others[label] for label in sorted(others))])] = value
        return found

    def total(self, name: str) -> float:
        """Return the sum of all series with a name."""
        return sum(value for (each, _), value in self.samples.items() if each == name)
