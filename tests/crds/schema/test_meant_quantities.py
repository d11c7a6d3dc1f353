"""Quantities that are valid, but never meant: the refusal has the quantity that was meant, and the field."""

import pytest

from crds import tenantqueue
from crds.errors import InvalidObject
from crds.resources import quantities, resource_names
from crds.torchjob import torchjob
from tests.support.crds import served
from tests.support.crds.builders import job, queue, task

UNMEANT = [
    ("memory", "512m", "512Mi"),
    ("memory", "512", "512Mi"),
    ("memory", 512, "512Mi"),
    ("memory", "1.5", "1.5Mi"),
    ("memory", "64k", "64Mi"),
    ("memory", "999Ki", "999Mi"),
    ("memory", "0.5M", ""),
    ("memory", "16n", "16Mi"),
    ("memory", "1e3", "1Mi"),
    ("memory", "9.5e5", "9.5Mi"),
    ("memory", "1234e2", "1234Mi"),
    ("memory", "12e-3", "12Mi"),
    ("requests.memory", "512m", "512Mi"),
    ("ephemeral-storage", "2000m", "2000Mi"),
    ("hugepages-2Mi", "512m", "512Mi"),
    ("requests.hugepages-1Gi", 4, "4Mi"),
    ("cpu", "500M", "500m"),
    ("cpu", "4Gi", "4m"),
    ("cpu", "2T", "2m"),
    ("cpu", "5000000", "5000000m"),
    ("cpu", 5000000, "5000000m"),
    ("cpu", "5e6", "5m"),
]
MEANT = [
    *(("memory", each) for each in ("512M", "512Mi", "1e9", "1.5Gi", "0", "0m", 0, "1048576", "1288490188800m")),
    *(("memory", each) for each in ("1e6", "0e3", "1000e3", "1.5e9")),
    *(("cpu", each) for each in ("500m", "1.5", "2k", "0.0001", "1e3", "999999", 4, "0M")),
    ("nvidia.com/gpu", "8"),
    ("jobs", "512"),
]


@pytest.mark.parametrize(("name", "quantity", "proposal"), UNMEANT)
def test_quantity_that_nobody_means_is_refused_with_what_is_meant(
    name: str, quantity: str | int, proposal: str
) -> None:
    words = resource_names.unmeant(name, quantity)
    assert words.endswith(f"; did you mean {proposal}?" if proposal else "bytes")
    manifest = queue(quota={name: quantity})
    assert any("cannot be meant" in each for each in served.refusals(manifest))
    with pytest.raises(InvalidObject, match="cannot be meant"):
        tenantqueue.parse(manifest)
    assert tenantqueue.limit_problem(name, str(quantity)) == f"{name}={quantity}: {words}"
    if name.startswith("requests."):
        return
    for kind in ("requests", "limits"):
        one = {"name": "torch", "image": "train", "resources": {kind: {name: quantity}}}
        manifest = job(torchTaskSpecs={"Master": task(template={"spec": {"containers": [one]}})})
        with pytest.raises(InvalidObject, match=f"resources.{kind}.{name}.*cannot be meant"):
            torchjob.parse_submitted(manifest)
        (refusal,) = served.refusals(manifest)
        assert f"{kind}.{name}: " in refusal
        assert name == "cpu" or refusal.endswith(words)
        assert torchjob.parse(manifest).charge  # a job that is already stored still runs


@pytest.mark.parametrize(("name", "quantity"), MEANT)
def test_quantity_that_somebody_may_mean_is_accepted(name: str, quantity: str | int) -> None:
    assert resource_names.unmeant(name, quantity) == ""
    assert served.refusals(queue(quota={name: quantity})) == []


def test_limit_that_was_stored_before_the_rule_stays_until_it_changes() -> None:
    stored = queue(quota={"memory": "512m", "cpu": "4"})
    assert served.refusals(stored | {"status": {"pending": 1}}, stored) == []
    assert served.refusals(queue(quota={"memory": "512m", "cpu": "8"}), stored) == []
    assert served.refusals(queue(quota={"memory": "256m", "cpu": "4"}), stored) != []
    assert tenantqueue.read(stored).spec.quota_amounts == {"memory": 1, "cpu": 4000}


@pytest.mark.parametrize(
    ("text", "proposal"),
    [
        ("1GB", "1G"),
        ("5120Mb", "5120M"),
        ("2gi", "2Gi"),
        ("1g", "1Gi"),
        ("16 GiB", "16Gi"),
        ("1,5", "1.5"),
        ("8kb", "8k"),
    ],
)
def test_text_that_is_no_quantity_is_refused_with_the_one_that_it_stands_for(text: str, proposal: str) -> None:
    assert quantities.parse("memory", proposal)
    with pytest.raises(ValueError, match=f"'{text}' is not a quantity; did you mean {proposal}\\?"):
        quantities.parse("memory", text)
