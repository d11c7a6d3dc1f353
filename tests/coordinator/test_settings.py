"""The sources of settings, and the errors for invalid settings."""

from decimal import Decimal
from pathlib import Path

import pytest

from coordinator import history_settings, settings
from coordinator.errors import SettingsError
from queues.rules import PickRules


def test_flags_environment_file_and_defaults_take_precedence_in_this_order(tmp_path: Path) -> None:
    file = tmp_path / "torchq.toml"
    file.write_text('cost = "cpu"\nthreads = 3\nbatch = 5\n')
    resolved = settings.resolve({"batch": 7}, {"TORCHQ_THREADS": "4", "TORCHQ_BATCH": "6"}, file)
    assert (resolved.settings.cost, resolved.settings.threads, resolved.settings.batch) == ("cpu", 4, 7)
    assert resolved.settings.heads == settings.Settings().heads
    names = ("cost", "threads", "batch", "heads")
    assert [resolved.sources[name] for name in names] == [str(file), "TORCHQ_THREADS", "--batch", "default"]


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"TORCHQ_THREADS": "0"}, ("threads", "TORCHQ_THREADS", "greater than or equal to 1")),
        ({"TORCHQ_THREADS": "many"}, ("threads", "valid integer")),
        ({"TORCHQ_POOL": "cpu"}, ("pool", "NAME=QUANTITY")),
        ({"TORCHQ_POOL": "cpu=fast"}, ("pool", "cpu", "fast")),
        ({"TORCHQ_POOL": "gpu=8"}, ("pool", "gpu is not a resource; did you mean nvidia.com/gpu?")),
        ({"TORCHQ_POOL": "cpu=4,nvidia.com/gpu=1.5"}, ("pool", "nvidia.com/gpu", "must be a whole number")),
        ({"TORCHQ_TOPOLOGY_LABELS": "rack,a b"}, ("topology_labels", "TORCHQ_TOPOLOGY_LABELS", "'a b' is no name")),
        ({"TORCHQ_TOPOLOGY_LABELS": "a,b,c,d,e,f,g,h,i"}, ("topology_labels", "at most 8")),
        ({"TORCHQ_LEAVING_TAINTS": "a=b"}, ("leaving_taints", "'a=b' is no name")),
        ({"TORCHQ_PORT_FIRST": "30000"}, ("port_last",)),
        ({"TORCHQ_RENEW_SECONDS": "6"}, ("renew_seconds", "half of renew_deadline")),
        ({"TORCHQ_LEASE_SECONDS": "10"}, ("renew_deadline", "below lease_seconds")),
        ({"TORCHQ_REPORT_URL": "10.0.0.1:8090"}, ("report_url", "http://HOST:PORT")),
        ({"TORCHQ_REPORT_URL": "http://host:1/v1"}, ("report_url", "http://HOST:PORT")),
        ({"TORCHQ_REPORT_URL": "http://host:80900"}, ("report_url", "http://HOST:PORT")),
        *(
            ({"TORCHQ_SERVICE": wrong}, ("service", "TORCHQ_SERVICE", "NAMESPACE/NAME"))
            for wrong in ("", "name", "a/b/c", "a/B", "../a", "a/" + "b" * 64)
        ),
        ({"TORCHQ_REPORT_URL": "http://user:password@host:1"}, ("report_url", "http://HOST:PORT")),
        ({"TORCHQ_PRICES": "gpu=1"}, ("prices", "gpu is not a resource; did you mean nvidia.com/gpu?")),
        ({"TORCHQ_PRICES": "cpu=-1"}, ("prices", "cpu: '-1' is not a number")),
        ({"TORCHQ_PRICES": "cpu"}, ("prices", "'cpu' is not RESOURCE=PRICE")),
    ],
)
def test_an_invalid_setting_is_an_error_that_names_it(environ: dict[str, str], words: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError) as caught:
        settings.resolve({}, environ, None)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_an_unknown_setting_in_the_file_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "torchq.toml"
    file.write_text("treads = 3\n")
    with pytest.raises(SettingsError, match=r"treads .* has no setting of this name"):
        settings.resolve({}, {}, file)


@pytest.mark.parametrize("text", [None, "threads = = 3\n"])
def test_an_unreadable_settings_file_is_an_error_that_names_it(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "torchq.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError, match=r"torchq\.toml"):
        settings.resolve({}, {}, file)


def test_masked_hides_the_password_of_a_url() -> None:
    shown = settings.mask("redis_url", "rediss://me:secret@host:6379/2")
    assert "secret" not in shown
    assert "host:6379/2" in shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nodes", "nodes"),
        ("none", None),
        ("cpu=1500m, memory=1Ki", {"cpu": 1500, "memory": 1024}),
        ("requests.nvidia.com/gpu=8", {"nvidia.com/gpu": 8}),
    ],
)
def test_parse_pool_reads_nodes_none_and_amounts(text: str, expected: object) -> None:
    assert settings.parse_pool(text) == expected


def test_settings_determine_the_rules_of_picks() -> None:
    found = settings.Settings(cost="nvidia.com/gpu", pool_patience=9.0).rules
    assert found == PickRules(cost="nvidia.com/gpu", longest_patience=9.0)
    assert settings.Settings().rules == PickRules()


def test_settings_of_earlier_versions_have_no_effect_and_are_named(tmp_path: Path) -> None:
    file = tmp_path / "torchq.toml"
    file.write_text("pool_bypasses = 7\nthreads = 3\n")
    found = settings.resolve({}, {}, file)
    assert (found.settings.threads, found.retired) == (3, {"pool_bypasses": str(file)})
    found = settings.resolve({}, {"TORCHQ_POOL_BYPASSES": "7"}, None)
    assert (found.settings, found.retired) == (settings.Settings(), {"pool_bypasses": "TORCHQ_POOL_BYPASSES"})


@pytest.mark.parametrize("cost", ["", "dominnt", "Dominant", "gpu"])
def test_a_cost_that_is_no_resource_is_refused(cost: str) -> None:
    with pytest.raises(ValueError, match="cost: "):
        settings.Settings(cost=cost)


def test_prices_are_a_text_or_a_table(tmp_path: Path) -> None:
    file = tmp_path / "torchq.toml"
    file.write_text('prices = {"nvidia.com/gpu" = 1.5, cpu = 0.00001, memory = 2}\n')
    of_table = settings.resolve({}, {}, file).settings
    of_text = settings.Settings(prices=of_table.prices)
    expected = {"nvidia.com/gpu": Decimal("1.5"), "cpu": Decimal("0.00001"), "memory": Decimal(2)}
    assert of_table.price_table == of_text.price_table == expected
    assert settings.Settings().price_table == {}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cret@db:5432/torchq?sslmode=require",
        "postgresql://ann:s3cret?x@db/torchq",
        "postgresql://ann:s3cret/x#y@db/torchq",
        "postgresql://db/torchq?password=a@s3cret",
        "postgresql://db/torchq?password=s3cret",
        "ann:s3cret@db",
    ],
)
def test_no_part_of_the_password_of_the_database_is_shown(url: str) -> None:
    shown = settings.describe(settings.Settings(history_url=url))["settings"]["history_url"]
    assert "s3cret" not in shown
    assert "ann" not in shown


def test_the_file_of_the_url_of_the_history_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "url"
    used = settings.Settings(history_url_file=str(file))
    with pytest.raises(SettingsError, match=r"url \(history_url_file\): No such file"):
        history_settings.history_url(used)
    for url in ("sqlite:////a", "sqlite:////b"):
        file.write_text(f"{url}\n")
        assert history_settings.history_url(used) == url
