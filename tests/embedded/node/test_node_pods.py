"""Pods on the embedded node, which runs their containers as processes of this machine."""

import os

import pytest

from crds import timestamps
from crds.api_resources import LEASES, NODES
from embedded.node import registration
from embedded.node.runs import container_processes
from tests.support.embedded.stage import SETTINGS, Stage, first, terminated
from tests.support.waiting import until

SLEEP = ("sleep", "600")


def alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def test_a_pod_succeeds_and_has_its_log_and_conditions(stage: Stage) -> None:
    name = stage.run("sh", "-c", "echo hello; echo world >&2")
    status = stage.phase(name, "Succeeded", "Failed")
    assert status["phase"] == "Succeeded"
    assert terminated(status)["exitCode"] == 0
    assert terminated(status)["reason"] == "Completed"
    assert stage.log(name) == "hello\nworld\n"
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions == {
        "PodScheduled": "True",
        "Initialized": "True",
        "ContainersReady": "False",
        "Ready": "False",
    }
    assert status["podIP"] == status["hostIP"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("script", "code", "signal"),
    [("exit 3", 3, None), ("kill -9 $$$$", 137, 9), ("kill -15 $$$$", 143, 15), ("kill -11 $$$$", 139, 11)],
)
def test_a_failed_container_reports_its_exit_code_and_signal(
    stage: Stage, script: str, code: int, signal: int | None
) -> None:
    name = stage.run("sh", "-c", script)
    status = stage.phase(name, "Failed")
    ended = terminated(status)
    assert (ended["exitCode"], ended.get("signal"), ended["reason"]) == (code, signal, "Error")


def test_a_container_with_a_missing_program_fails_with_start_error(stage: Stage) -> None:
    name = stage.run("no-such-program", "--fast")
    ended = terminated(stage.phase(name, "Failed"))
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert "'no-such-program'" in ended["message"]


def test_a_running_pod_is_ready(stage: Stage) -> None:
    name = stage.run(*SLEEP)
    status = stage.phase(name, "Running")
    container = status["containerStatuses"][0]
    assert container["ready"]
    assert "running" in container["state"]
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions["Ready"] == conditions["ContainersReady"] == "True"
    stage.delete(name, grace=0)
    stage.wait_gone(name)


def test_init_containers_run_first_in_order(stage: Stage) -> None:
    write = [{"command": ["sh", "-c", f"echo {word} >> $TORCHQ_VOLUME_SHARED_DATA/words"]} for word in ("one", "two")]
    name = stage.make(
        [{"command": ["sh", "-c", "cat $TORCHQ_VOLUME_SHARED_DATA/words"]}],
        init=write,
        volumes=[{"name": "shared-data", "emptyDir": {}}],
    )
    status = stage.phase(name, "Succeeded")
    assert stage.log(name, "c0") == "one\ntwo\n"
    assert [each["ready"] for each in status["initContainerStatuses"]] == [True, True]


def test_a_failed_init_container_fails_the_pod(stage: Stage) -> None:
    name = stage.run("true", init=[{"command": ["false"]}])
    status = stage.phase(name, "Failed")
    assert terminated(status, kind="initContainerStatuses")["exitCode"] == 1
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_a_pod_runs_until_all_its_containers_have_ended(stage: Stage) -> None:
    name = stage.make([{"command": ["true"]}, {"command": list(SLEEP)}])
    stage.wait(name, lambda status: "terminated" in first(status).get("state", {}))
    assert stage.status(name)["phase"] == "Running"
    stage.delete(name, grace=0)


def test_policy_on_failure_restarts_a_container_until_it_succeeds(stage: Stage) -> None:
    script = 'echo x >> "$TORCHQ_VOLUME_V/tries"; test $(wc -l < "$TORCHQ_VOLUME_V/tries") -ge 3'
    name = stage.run("sh", "-c", script, policy="OnFailure", volumes=[{"name": "v", "emptyDir": {}}])
    status = stage.phase(name, "Succeeded")
    container = status["containerStatuses"][0]
    assert container["restartCount"] == 2
    assert container["lastState"]["terminated"]["exitCode"] == 1


def test_policy_always_restarts_a_container_with_backoff(stage: Stage) -> None:
    name = stage.run("true", policy="Always")
    status = stage.wait(
        name,
        lambda status: first(status).get("restartCount", 0) >= 2 and "CrashLoopBackOff" in str(first(status)["state"]),
    )
    assert first(status)["lastState"]["terminated"]["exitCode"] == 0
    assert status["phase"] == "Running"
    stage.delete(name)
    stage.wait_gone(name)


def test_a_container_has_the_variables_of_its_pod_and_of_the_node(stage: Stage) -> None:
    fields = {
        "NAME": "metadata.name",
        "WHERE": "metadata.namespace",
        "NODE": "spec.nodeName",
        "ADDRESS": "status.podIP",
        "COLOUR": "metadata.labels['colour']",
        "NOTE": "metadata.annotations['example.com/note']",
    }
    env = [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()]
    env += [
        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}}},
        {"name": "MIB", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
        {"name": "GREETING", "value": "hello $(NAME) $$(NAME) $(NOBODY)"},
    ]
    name = stage.run(
        "sh",
        "-c",
        'echo "$GREETING|$NAME|$WHERE|$NODE|$ADDRESS|$COLOUR|$NOTE|$CPUS|$MIB|$OMP_NUM_THREADS|$GLOO_SOCKET_IFNAME"',
        container={
            "env": env,
            "resources": {"requests": {"cpu": "2500m"}, "limits": {"memory": "1Gi", "cpu": "3"}},
        },
        metadata={"labels": {"colour": "red"}, "annotations": {"example.com/note": "a note"}},
    )
    stage.phase(name, "Succeeded")
    expected = f"hello {name} $(NAME) $(NOBODY)|{name}|default|local|127.0.0.1|red|a note|3|1024|2|lo\n"
    assert stage.log(name) == expected


def test_a_container_has_no_variables_of_the_node_process(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "xyzzy")
    name = stage.run("env")
    stage.phase(name, "Succeeded")
    assert "A_SECRET" not in stage.log(name)


def test_a_container_runs_the_python_of_the_node(stage: Stage) -> None:
    name = stage.run("python", "-c", "import sys; print(sys.prefix)")
    stage.phase(name, "Succeeded")
    assert stage.log(name).strip() == os.path.realpath(os.sys.prefix)


def test_gpus_are_exclusive(stage: Stage) -> None:
    wants = {"resources": {"limits": {"nvidia.com/gpu": 2}}}
    script = ("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"; sleep 600')
    names = [stage.run(*script, container=wants) for _ in range(3)]
    until(lambda: [stage.status(name).get("phase") for name in names], lambda phases: phases.count("Running") == 2)
    running = [name for name in names if stage.status(name)["phase"] == "Running"]
    seen = {until(lambda name=name: stage.log(name), bool) for name in running}
    assert seen == {"0,1\n", "2,3\n"}
    (waiting,) = set(names) - set(running)
    scheduled = next(each for each in stage.status(waiting)["conditions"] if each["type"] == "PodScheduled")
    assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    assert scheduled["message"] == "insufficient nvidia.com/gpu"
    stage.delete(running[0], grace=0)
    stage.phase(waiting, "Running")
    for name in names[1:] + names[:1]:
        if name != running[0]:
            stage.delete(name, grace=0)
            stage.wait_gone(name)


@pytest.mark.parametrize(
    ("spec", "container", "words"),
    [
        (
            {"volumes": [{"name": "data", "emptyDir": {}}]},
            {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
            ("spec.containers[0].volumeMounts[0].mountPath", "'/data'", "TORCHQ_VOLUME_DATA"),
        ),
        ({"volumes": [{"name": "data", "secret": {"secretName": "s"}}]}, {}, ("spec.volumes[0].secret",)),
        ({}, {"command": None}, ("spec.containers[0].command",)),
        ({}, {"livenessProbe": {"exec": {"command": ["true"]}}}, ("spec.containers[0].livenessProbe",)),
        (
            {},
            {"env": [{"name": "KEY", "valueFrom": {"fileKeyRef": {"path": "f", "key": "k"}}}]},
            ("spec.containers[0].env[0].valueFrom.fileKeyRef", "KEY"),
        ),
    ],
)
def test_a_pod_with_an_unsupported_field_fails_and_names_the_field(
    stage: Stage, spec: dict[str, object], container: dict[str, object], words: tuple[str, ...]
) -> None:
    given = {key: value for key, value in {"command": ["true"], **container}.items() if value is not None}
    name = stage.make([given], **spec)
    status = stage.phase(name, "Failed")
    assert status["reason"] == "NotSupported"
    assert all(word in status["message"] for word in words)
    assert not stage.folder(name).exists()


def test_a_pod_that_chooses_its_node_itself_is_refused(stage: Stage) -> None:
    (node,) = stage.cluster.list(NODES).items
    name = stage.make([{"command": ["true"]}], nodeName=node["metadata"]["name"])
    status = stage.phase(name, "Failed")
    assert status["reason"] == "NotSupported"
    assert "spec.nodeName is not supported; remove it" in status["message"]


def test_a_mount_path_that_exists_on_the_machine_is_used_as_it_is(stage: Stage) -> None:
    here = str(stage.layout.root)
    name = stage.run(
        "sh",
        "-c",
        'echo "$TORCHQ_VOLUME_DATA"',
        container={
            "volumeMounts": [{"name": "data", "mountPath": here + "/"}, {"name": "shm", "mountPath": "/dev/shm"}]
        },
        volumes=[{"name": "data", "hostPath": {"path": here}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}],
    )
    stage.phase(name, "Succeeded")
    assert stage.log(name).strip() == here


def test_a_container_runs_in_the_working_directory_of_its_spec_job_or_pod(stage: Stage, tmp_path: object) -> None:
    submitted = {"annotations": {"train.distributed.io/submit-directory": str(tmp_path)}}
    cases = {
        stage.run("pwd", container={"workingDir": "/"}, metadata=submitted): "/",
        stage.run("pwd", metadata=submitted): str(tmp_path),
    }
    for name, expected in cases.items():
        stage.phase(name, "Succeeded")
        assert stage.log(name).strip() == expected
    name = stage.run("pwd")
    stage.phase(name, "Succeeded")
    assert stage.log(name).strip() == str(stage.folder(name))
    name = stage.run("pwd", container={"workingDir": "/no/such/folder"})
    assert "/no/such/folder" in terminated(stage.phase(name, "Failed"))["message"]


def test_a_deleted_container_gets_sigterm_and_can_end_cleanly(stage: Stage) -> None:
    name = stage.run("sh", "-c", 'trap "echo bye; exit 7" TERM; echo up; while :; do sleep 0.05; done')
    until(lambda: stage.log(name) if stage.phase(name, "Running") else "", bool)
    output = stage.folder(name) / "containers" / "c0" / "0" / "output"
    with output.open() as log:
        stage.delete(name)
        stage.wait_gone(name)
        assert log.read().split()[-1] == "bye"
    until(output.exists, lambda there: not there)


def test_deletion_kills_processes_that_ignore_sigterm_and_their_children(stage: Stage) -> None:
    script = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "script = 'trap \"\" TERM; sleep 600 & wait; sleep 600'\n"
        "children = [subprocess.Popen(['sh', '-c', script], start_new_session=new) "
        "for new in (False, True)]\n"
        "print(os.getpid(), *[c.pid for c in children], flush=True)\n"
        "time.sleep(600)\n"
    )
    name = stage.run("python", "-c", script)
    stage.phase(name, "Running")
    pids = [int(word) for word in until(lambda: stage.log(name), lambda text: text.endswith("\n")).split()]
    assert len(pids) == 3
    mark = stage.get(name)["metadata"]["uid"] + "/"
    assert set(pids) <= container_processes.members(mark)
    stage.delete(name, grace=1)
    stage.wait_gone(name)
    assert not any(map(alive, pids))
    assert not container_processes.members(mark)


def test_background_processes_of_a_container_end_with_it(stage: Stage) -> None:
    name = stage.run("sh", "-c", "setsid sh -c 'setsid sleep 600 & sleep 600' & echo $!; sleep 0.2")
    stage.phase(name, "Succeeded")
    assert not container_processes.members(stage.get(name)["metadata"]["uid"] + "/")


def test_a_pod_past_its_active_deadline_fails(stage: Stage) -> None:
    name = stage.run(*SLEEP, activeDeadlineSeconds=1, terminationGracePeriodSeconds=5)
    status = stage.phase(name, "Failed")
    assert status["reason"] == "DeadlineExceeded"
    assert terminated(status)["exitCode"] == 143


def test_the_end_of_the_log_is_the_fallback_termination_message(stage: Stage) -> None:
    wants = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    name = stage.run("sh", "-c", "echo out of luck; exit 1", container=wants)
    assert terminated(stage.phase(name, "Failed"))["message"] == "out of luck"


def test_pods_of_a_gang_wait_until_all_of_them_exist(stage: Stage) -> None:
    gang = {"train.distributed.io/gang": "g-1", "train.distributed.io/gang-size": "2"}
    first = stage.run("true", metadata={"annotations": gang})
    stage.wait(first, lambda status: "not all of its 2 pods" in str(status.get("conditions")))
    alone = stage.run("true")
    stage.phase(alone, "Succeeded")
    second = stage.run("true", metadata={"annotations": gang})
    stage.phase(first, "Succeeded")
    stage.phase(second, "Succeeded")


def test_a_pod_of_another_scheduler_is_ignored(stage: Stage) -> None:
    foreign = stage.run("true", schedulerName="somebody-else")
    ours = stage.run("true", schedulerName="volcano")
    stage.phase(ours, "Succeeded")
    assert "conditions" not in stage.status(foreign)


def test_the_node_object_shows_capacity_readiness_and_a_lease(stage: Stage) -> None:
    node = stage.cluster.get(NODES, "local")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert node["status"]["allocatable"]["cpu"] == "8"
    assert {each["type"]: each["status"] for each in node["status"]["conditions"]} == {"Ready": "True"}
    assert until(lambda: stage.cluster.list(LEASES, "kube-node-lease").items, bool)


@pytest.mark.parametrize(("renewed", "moves"), [(None, True), (1_000.0, True), (1_050.0, False)])
def test_a_node_is_ready_from_its_return_if_its_lease_had_expired(
    bare: Stage, renewed: float | None, moves: bool
) -> None:
    node = registration.node(f"away-{renewed or 0:.0f}", SETTINGS.machine)
    registration.register(bare.cluster, node, 1_000.0)
    if renewed is not None:
        when = timestamps.format_time(renewed).replace("Z", ".000000Z")
        times = {"renewTime": when, "holderIdentity": node.name, "leaseDurationSeconds": 40}
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": node.name}, "spec": times}
        bare.cluster.create(LEASES, body, registration.LEASE_NAMESPACE)
    registration.register(bare.cluster, node, 1_060.0)
    [ready] = bare.cluster.get(NODES, node.name)["status"]["conditions"]
    assert ready["lastTransitionTime"] == timestamps.format_time(1_060.0 if moves else 1_000.0)
    bare.cluster.delete(NODES, node.name)
