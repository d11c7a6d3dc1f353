"""From documents of plain values to requests: every error names its field."""

from typing import Any

import pytest

from coordinator.runs import request
from coordinator.runs.errors import InvalidRun
from coordinator.runs.request import RunRole, Upstream
from coordinator.runs.variables import SecretKey

RUN = {"command": ["python", "train.py"], "folder": "/home/me", "namespace": "team"}


def test_a_command_for_several_nodes_becomes_a_master_and_workers() -> None:
    parsed = request.parse({**RUN, "nodes": 4, "gpus": 8, "cpus": 2, "memory": "1Gi", "env": {"A": "1"}})
    master = RunRole(("python", "train.py"), 1, 8, "2", "1Gi", env={"A": "1"})
    assert parsed.roles["Master"] == master
    assert parsed.roles["Worker"].nodes == 3
    assert {parsed.roles["Worker"].gpus, parsed.roles["Worker"].memory} == {8, "1Gi"}
    assert request.parse(RUN).roles.keys() == {"Master"}


@pytest.mark.parametrize("nodes", ["1..3", [1, 3], (1, 3)])
def test_a_range_of_nodes_becomes_elastic_workers(nodes: Any) -> None:
    [(name, worker)] = request.parse({**RUN, "nodes": nodes}).roles.items()
    assert (name, worker.nodes, worker.bounds) == ("Worker", 3, (1, 3)), (
        "the job requests the most nodes, and may begin with the least"
    )
    idle = request.parse({**RUN, "nodes": nodes, "autoscale": True})
    assert idle.roles["Worker"].nodes == 1, "nodes above the least are idle growth"


def test_roles_have_their_own_commands_and_wait_for_each_other() -> None:
    parsed = request.parse(
        {
            "folder": "/home/me",
            "namespace": "team",
            "image": "torch",
            "roles": {
                "Data": {"command": ["a"]},
                "Master": {"command": ["b"], "after": "Data:Succeeded", "image": "other"},
                "Worker": {"command": ["b"], "nodes": 3, "after": "Master", "secret_env": {"T": "wandb/api-key"}},
            },
        }
    )
    assert parsed.roles["Master"].after == Upstream("Data", "Succeeded")
    assert parsed.roles["Worker"].after == Upstream("Master", "Running")
    assert parsed.roles["Worker"].secret_env == {"T": SecretKey("wandb", "api-key")}
    assert (parsed.image, parsed.roles["Master"].image, parsed.roles["Data"].image) == ("torch", "other", "")


def test_null_is_as_good_as_a_missing_field() -> None:
    nothing = dict.fromkeys(request.FIELDS)
    assert request.parse({**nothing, **RUN}) == request.parse(RUN)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": 0}, "nodes: must be 1 or more, not 0"),
        ({"nodes": 1.5}, "nodes: must be a whole number, or a range as in 1..3, not 1.5"),
        ({"nodes": True}, "nodes: must be a whole number, or a range as in 1..3, not True"),
        ({"nodes": [True, 2]}, "nodes: must be a whole number, or a range"),
        ({"nodes": "1..2..3"}, "nodes: must be a whole number, or a range as in 1..3"),
        ({"nodes": "0..3"}, "nodes: must be 1 or more, not 0"),
        ({"nodes": 3, "autoscale": True}, "autoscale: needs a range of nodes, as in 1..3"),
        ({"checkpoint_seconds": -1}, "checkpoint_seconds: must be 0 or more"),
        (
            {"command": None, "roles": {"Data": {"command": ["a"], "nodes": [1, 3]}}},
            "roles.Data.nodes: only the role Worker may have a range",
        ),
        ({"nodes": 10_001}, "nodes: must be 10000 or less, not 10001"),
        ({"gpus": -1}, "gpus: must be 0 or more, not -1"),
        ({"cpus": 0}, "cpus: must be more than nothing, not 0"),
        ({"cpus": "few"}, "cpus: 'few' is not a quantity"),
        ({"memory": "1x"}, "memory: '1x' is not a quantity"),
        ({"memory": "0"}, "memory: must be more than nothing, not '0'"),
        ({"memory": "-1Gi"}, "memory: "),
        ({"command": []}, "command: is missing"),
        ({"command": "python train.py"}, "command: must be a list of texts"),
        ({"command": ["a", 1]}, r"command\[1\]: must be a text, not 1"),
        ({"command": ["a", "\udce4"]}, r"command\[1\]: is not UTF-8"),
        ({"command": ["a\0"]}, r"command\[0\]: has a zero byte"),
        ({"folder": ""}, "folder: is missing"),
        ({"namespace": None}, "namespace: is missing"),
        ({"node": 2}, "node: there is no such field; did you mean nodes?"),
        ({"if_exists": "perhaps"}, "if_exists: must be one of fail, replace, attach, not 'perhaps'"),
        ({"if_exists": "replace"}, "if_exists: replace needs a name"),
        ({"in_place": "yes"}, "in_place: must be true or false"),
        ({"env": {"1A": "x"}}, "env: '1A' is not the name of a variable"),
        ({"env": {"A": 1}}, "env.A: must be a text, not 1"),
        ({"env": ["A=1"]}, "env: must be a map of texts"),
        ({"env": {"HF_TOKEN": "x"}}, "env.HF_TOKEN: looks like a secret"),
        ({"secret_env": {"HF_TOKEN": "hf_abcdefg"}}, "secret_env.HF_TOKEN: must be SECRET/KEY"),
        ({"after": "Master"}, "after: is for a run with several roles"),
        ({"time": ""}, "time: must be a duration, as in 90s"),
        ({"time": "0s"}, "time: must be a second or more"),
        ({"time": "2"}, "time: must be a duration, as in 90s"),
        ({"grace": "90"}, "grace: must be a duration, as in 90s"),
        ({"grace": "0s"}, "grace: must be a second or more"),
        ({"grace": 90}, "grace: must be a text, not 90"),
        ({"retries": -1}, "retries: must be 0 or more"),
        ({"success": "master", "nodes": "1..2"}, "success: master needs a Master"),
        ({"nodes": "3..1"}, "nodes: begins with more than it ends with: 3..1"),
        ({"ttl_seconds": -1}, "ttl_seconds: must be 0 or more"),
        ({"priority": 2**40}, "priority: must be 1000000000 or less"),
        ({"exclude": "data"}, "exclude: must be a list of texts"),
        ({"roles": {"Master": {"command": ["a"]}}}, "command: a run has either this field or roles"),
        ({"command": None, "roles": {}}, "roles: must be a map from names"),
        ({"command": None, "roles": {"Master": ["a"]}}, "roles.Master: must be a map"),
        ({"command": None, "roles": {"Master": {"comand": ["a"]}}}, "roles.Master.comand: .* did you mean command?"),
        ({"command": None, "roles": {"M": {"command": ["a"], "after": "N"}}}, "roles.M.after: must be another role"),
        ({"command": None, "roles": {"M": {"command": ["a"], "after": "M:Up"}}}, "roles.M.after: must be ROLE"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRun, match=f"^{message}"):
        request.parse({**RUN, **changes})


def test_a_secret_that_was_given_in_the_wrong_place_is_not_repeated() -> None:
    for field in ("env", "secret_env"):
        with pytest.raises(InvalidRun) as caught:
            request.parse({**RUN, field: {"HF_TOKEN": "hf_abcdefg"}})
        assert "hf_abcdefg" not in str(caught.value)
