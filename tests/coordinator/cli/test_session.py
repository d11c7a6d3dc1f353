"""What all commands share: the choice of the cluster, the environment of child processes, and error messages."""

import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from coordinator.cli import lazy_group
from coordinator.cli.lazy_group import CommandGroup
from coordinator.cli.session import Session
from coordinator.errors import LocalError
from coordinator.local import stack_state, user_folders
from crds.errors import InvalidObject, Problem
from kube import errors
from queues.errors import StoreUnreachable
from tests.support.kube.servers import Server


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> object:
    """Set up a home folder without any Kubernetes configuration."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


def made(**environ: str) -> Session:
    return Session({}, None, {"HOME": os.environ["HOME"], **environ})


def test_without_another_cluster_the_embedded_one_is_used(home: object) -> None:
    assert made().connection.kubeconfig == ""
    embedded = user_folders.default_data() / "kubeconfig"
    embedded.parent.mkdir(parents=True)
    embedded.write_text("{}")
    with pytest.raises(LocalError, match="is not running"):
        _ = made().connection
    with stack_state.hold_lock(stack_state.Files(embedded.parent)):
        assert made().connection.kubeconfig == str(embedded)


@pytest.mark.parametrize("environ", [{"KUBECONFIG": "/elsewhere"}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}])
def test_a_configured_cluster_takes_precedence_over_the_embedded_one(home: object, environ: dict[str, str]) -> None:
    embedded = user_folders.default_data() / "kubeconfig"
    embedded.parent.mkdir(parents=True)
    embedded.write_text("{}")
    assert made(**environ).connection.kubeconfig == ""


def test_torchq_kubeconfig_takes_precedence_over_kubeconfig(home: object) -> None:
    assert made(TORCHQ_KUBECONFIG="/mine", KUBECONFIG="/elsewhere").connection.kubeconfig == "/mine"


def test_no_configured_cluster_is_an_error(home: object) -> None:
    with pytest.raises(errors.Misconfigured, match="--kubeconfig"):
        _ = made().cluster


def test_the_environment_of_a_child_has_only_settings_that_differ_from_defaults() -> None:
    parent = Session(
        {"threads": 3}, None, {"TORCHQ_REDIS_URL": "redis://me:secret@host/2", "TORCHQ_POOL": "none", "X": "1"}
    )
    told = parent.environment()
    assert told == {"TORCHQ_THREADS": "3", "TORCHQ_REDIS_URL": "redis://me:secret@host/2", "TORCHQ_POOL": "none"}
    assert made(**told).settings == parent.settings


def test_a_child_reads_the_redis_url_from_the_file_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("redis://me:secret@host/2\n")
    parent = Session({"redis_url_file": str(file)}, None, {"TORCHQ_REDIS_URL": "redis://other"})
    told = parent.environment()
    assert told == {"TORCHQ_REDIS_URL": "", "TORCHQ_REDIS_URL_FILE": str(file)}
    file.write_text("redis://me:rotated@host/2\n")
    assert made(**told).settings.redis.url() == parent.settings.redis.url() == "redis://me:rotated@host/2"


def test_settings_of_every_type_reach_a_child_unchanged() -> None:
    flags = {"implicit_queues": True, "queued_after": 2.5, "master_address": "loopback", "health_port": 8080}
    parent = Session(flags, None, {})
    assert made(**parent.environment()).settings == parent.settings


def test_flags_of_a_command_are_added_to_the_other_settings() -> None:
    joined = Session({"threads": 3}, None, {"TORCHQ_PROCESSES": "5"}).with_flags(processes=7, health_port=None)
    assert (joined.settings.threads, joined.settings.processes, joined.settings.health_port) == (3, 7, 0)


def test_the_namespace_comes_from_the_flag_or_the_context(embedded_server: Server) -> None:
    environ = {"TORCHQ_KUBECONFIG": str(embedded_server.kubeconfig)}
    assert Session({}, None, environ).namespace == "default"
    assert Session({"namespace": "mine"}, None, environ).namespace == "mine"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.NotFound("torchjobs 'x' is not there"), "Error: torchjobs 'x' is not there\n"),
        (StoreUnreachable("Redis at redis://h does not answer"), "Error: Redis at redis://h does not answer\n"),
        (InvalidObject((Problem("spec.a", "Required value"),)), "Error: spec.a: Required value\n"),
        (
            errors.Invalid(
                "TorchJob x is invalid", (errors.FieldCause("spec.a", "too large"), errors.FieldCause("", "no"))
            ),
            "Error: TorchJob x is invalid\n  spec.a: too large\n  no\n",
        ),
    ],
)
def test_an_expected_error_is_one_message_and_exit_code_1(error: Exception, words: str) -> None:
    @click.group(cls=CommandGroup)
    def group() -> None: ...

    @group.command()
    def fail() -> None:
        raise error

    result = CliRunner().invoke(group, ["fail"])
    assert (result.exit_code, result.stderr) == (1, words)


def test_an_unexpected_error_is_not_hidden() -> None:
    @click.group(cls=CommandGroup)
    def group() -> None: ...

    @group.command()
    def fail() -> None:
        raise ZeroDivisionError

    assert isinstance(CliRunner().invoke(group, ["fail"]).exception, ZeroDivisionError)
    assert ZeroDivisionError not in lazy_group.USER_ERRORS
