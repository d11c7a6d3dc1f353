"""A manifest is parsed to a valid TorchJob or refused with a list of all its problems."""

from typing import Any

import pytest

from crds.errors import InvalidObject
from crds.keys import JobKey
from crds.torchjob import checks, memory_growth, torchjob
from tests.support.crds.builders import job, task, template


def problems(manifest: Any) -> list[str]:
    with pytest.raises(InvalidObject) as error:
        torchjob.parse(manifest)
    return [str(problem) for problem in error.value.problems]


def test_defaults_depend_on_the_task_type() -> None:
    tasks = {name: task() for name in ("Worker", "AIMaster", "Evaluator", "Master")}
    parsed = torchjob.parse(job(torchTaskSpecs=tasks))
    assert {name: (each.num_tasks, each.restart_policy) for name, each in parsed.spec.tasks.items()} == {
        "Master": (1, "ExitCode"),
        "AIMaster": (1, "Never"),
        "Evaluator": (1, "OnFailure"),
        "Worker": (1, "OnFailure"),
    }
    assert list(parsed.spec.tasks) == ["Master", "AIMaster", "Evaluator", "Worker"]


def test_explicit_value_precedes_a_default() -> None:
    parsed = torchjob.parse(job(torchTaskSpecs={"Master": task(restartPolicy="Always")}))
    assert parsed.spec.tasks["Master"].restart_policy == "Always"


@pytest.mark.parametrize(
    ("declared", "by_template", "policy"),
    [
        (None, "Never", "Never"),
        (None, "Always", "Always"),
        ("ExitCode", "Never", "ExitCode"),
        (None, None, "default"),
        (None, "Sometimes", "default"),
        (None, 3, "default"),
    ],
)
def test_a_policy_in_the_template_is_that_of_a_task_without_one(
    declared: str | None, by_template: object, policy: str
) -> None:
    for task_type, default in (("Master", "ExitCode"), ("Worker", "OnFailure"), ("Evaluator", "OnFailure")):
        described = task(**({"restartPolicy": declared} if declared else {}))
        described["template"]["spec"]["restartPolicy"] = by_template
        parsed = torchjob.parse(job(torchTaskSpecs={task_type: described}))
        assert parsed.spec.tasks[task_type].restart_policy == (default if policy == "default" else policy)


def test_defaults_are_not_written_into_the_manifest() -> None:
    manifest = job()
    torchjob.parse(manifest)
    assert manifest == job()


def test_parsed_job_has_key_queue_and_pod_names() -> None:
    parsed = torchjob.parse(job(minMembers={"Worker": 1}))
    assert parsed.key == JobKey("team", "train", "u1")
    assert parsed.queue == "team"
    assert parsed.pod_name("Worker", 1) == "train-worker-1"
    assert (parsed.spec.members("Worker"), parsed.spec.members("Master")) == (1, 1)
    assert parsed.submission_time == 1767225600.0
    assert (parsed.admission, parsed.is_finished, parsed.is_deleting, parsed.status.attempt) == (None, False, False, 0)
    assert torchjob.parse(job(schedulingPolicy={"queue": "gold"})).queue == "gold"


def test_status_with_unknown_fields_is_read() -> None:
    status = {
        "phase": "Running",
        "admission": {
            "queue": "q",
            "attempt": 2,
            "epoch": 7,
            "charge": {"cpu": 1000, "pods": 2},
            "port": 20001,
            "new": 1,
        },
        "queue": {"parked": True, "notBefore": "2026-01-01T00:00:00Z"},
        "taskStatuses": {"Worker": {"active": 2}},
        "ofAnotherVersion": {},
    }
    found = torchjob.parse(job(status=status))
    assert found.admission is not None
    assert (found.admission.queue, found.admission.epoch, found.admission.charge) == ("q", 7, {"cpu": 1000, "pods": 2})
    assert found.status.queue is not None
    assert found.status.queue.parked
    assert found.status.task_statuses["Worker"].active == 2


def test_charge_stored_without_pods_gets_the_pods_of_the_job() -> None:
    admission = {"queue": "q", "attempt": 2, "epoch": 7, "charge": {"jobs": 1, "cpu": 1000}}
    found = torchjob.parse(job(status={"phase": "Running", "admission": admission}))
    assert found.admission is not None
    assert found.admission.charge == {"jobs": 1, "cpu": 1000, "pods": found.spec.charge["pods"]}
    assert found.admission.attempt == 2


WORKERS, POLICY = "spec.torchTaskSpecs.Worker", "spec.torchElasticPolicy"
GROWTH = f"{WORKERS}.memoryGrowth"


def growing(pod: dict[str, Any] | None = None, **growth: Any) -> dict[str, Any]:
    """Return a job whose Worker has this memoryGrowth. The pod template requests 2Gi and has a limit of 3Gi."""
    if pod is None:
        pod = template(memory="3Gi")
        pod["spec"]["containers"][0]["resources"]["requests"] = {"memory": "2Gi"}
    return job(torchTaskSpecs={"Worker": task(template=pod, memoryGrowth=growth)})


REFUSED: list[tuple[str, Any, list[str]]] = [
    ("unknown field", job(numTask=1), ['spec.numTask: unknown field "spec.numTask"']),
    ("snake case", job(clean_pod_policy="All"), ['spec.clean_pod_policy: unknown field "spec.clean_pod_policy"']),
    (
        "negative numTasks",
        job(torchTaskSpecs={"Worker": task(numTasks=-1)}),
        [f"{WORKERS}.numTasks: Invalid value: -1: {WORKERS}.numTasks in body should be greater than or equal to 1"],
    ),
    (
        "unknown restartPolicy",
        job(torchTaskSpecs={"Worker": task(restartPolicy="Sometimes")}),
        [
            f'{WORKERS}.restartPolicy: Unsupported value: "Sometimes": '
            'supported values: "Always", "OnFailure", "ExitCode", "Never"'
        ],
    ),
    (
        "a string instead of a number",
        job(backoffLimit="6"),
        ['spec.backoffLimit: Invalid value: "string": spec.backoffLimit in body must be of type integer: "string"'],
    ),
    (
        "two masters",
        job(torchTaskSpecs={"Master": task(numTasks=2)}),
        ["spec.torchTaskSpecs.Master.numTasks: Invalid value: 2: a job has exactly one Master: set numTasks to 1"],
    ),
    (
        "minMembers above numTasks",
        job(minMembers={"Worker": 3}),
        ["spec.minMembers.Worker: Invalid value: 3: must not be greater than the task's numTasks"],
    ),
    (
        "minMembers of an unknown task",
        job(minMembers={"Evaluator": 1}),
        [
            'spec.minMembers.Evaluator: Invalid value: "Evaluator": '
            "every task type here must be one of spec.torchTaskSpecs"
        ],
    ),
    (
        "unknown dependency",
        job(torchTaskSpecs={"Worker": task(dependsOn=[{"taskType": "Master"}])}),
        [
            f'{WORKERS}.dependsOn[0].taskType: Invalid value: "Master": '
            "taskType must be another task of spec.torchTaskSpecs"
        ],
    ),
    (
        "dependency on the success of a task that never ends",
        job(
            torchTaskSpecs={
                "Board": task(restartPolicy="Always"),
                "Worker": task(dependsOn=[{"taskType": "Board", "phase": "Succeeded"}]),
            }
        ),
        [
            f'{WORKERS}.dependsOn[0].phase: Invalid value: "Succeeded": '
            "a task with restartPolicy Always never succeeds: wait for phase Running"
        ],
    ),
    (
        "dependency on itself",
        job(torchTaskSpecs={"Worker": task(dependsOn=[{"taskType": "Worker"}])}),
        [
            f'{WORKERS}.dependsOn[0].taskType: Invalid value: "Worker": '
            "taskType must be another task of spec.torchTaskSpecs"
        ],
    ),
    (
        "cycle",
        job(
            torchTaskSpecs={
                "Master": task(dependsOn=[{"taskType": "Worker"}]),
                "Worker": task(dependsOn=[{"taskType": "Master"}]),
            }
        ),
        ["spec.torchTaskSpecs: dependency cycle Master -> Worker -> Master"],
    ),
    (
        "a cycle behind a task that is not in it",
        job(
            torchTaskSpecs={
                "A": task(dependsOn=[{"taskType": "B"}]),
                "B": task(dependsOn=[{"taskType": "C"}]),
                "C": task(dependsOn=[{"taskType": "D"}]),
                "D": task(dependsOn=[{"taskType": "B"}]),
            }
        ),
        ["spec.torchTaskSpecs: dependency cycle B -> C -> D -> B"],
    ),
    (
        "an invalid task type",
        job(torchTaskSpecs={"a-b": task()}),
        ['spec.torchTaskSpecs: Invalid value: "a-b": every key must match ^[A-Za-z][A-Za-z0-9]{0,19}$'],
    ),
    (
        "task types that differ only in case",
        job(torchTaskSpecs={"ps": task(), "PS": task()}),
        ['spec.torchTaskSpecs.PS: Invalid value: "PS": task types must differ in more than case'],
    ),
    (
        "a master in lower case",
        job(torchTaskSpecs={"master": task()}),
        ['spec.torchTaskSpecs.master: Invalid value: "master": Master, Worker and AIMaster are spelled so'],
    ),
    (
        "no task",
        job(torchTaskSpecs={}),
        ["spec.torchTaskSpecs: Invalid value: 0: spec.torchTaskSpecs in body should have at least 1 properties"],
    ),
    ("a long name", job("a" * 41), ["metadata.name: Too long: may not be more than 40 bytes"]),
    (
        "a name that is invalid for a Service",
        job("1a"),
        ["metadata.name: Invalid value: \"1a\": metadata.name in body should match '^[a-z]([-a-z0-9]*[a-z0-9])?$'"],
    ),
    (
        "long pod names",
        job("a" * 40, torchTaskSpecs={"W" * 20: task(numTasks=11)}),
        [
            f'spec.torchTaskSpecs.{"W" * 20}: Invalid value: "{"W" * 20}": '
            "pod names, <job>-<task type>-<index>, would exceed 63 characters: shorten the job's name"
        ],
    ),
    (
        "elastic range",
        job(torchElasticPolicy={"numMinReplicas": 3, "numMaxReplicas": 2}),
        [
            "spec.torchElasticPolicy.numMinReplicas: Invalid value: 3: "
            "numMinReplicas must not be greater than numMaxReplicas"
        ],
    ),
    (
        "autoscaling without a maximum",
        job(torchElasticPolicy={"autoscale": "Idle"}),
        [f'{POLICY}.autoscale: Invalid value: "Idle": {checks.NO_MAXIMUM}'],
    ),
    (
        "autoscaling between equal bounds",
        job(torchElasticPolicy={"numMinReplicas": 2, "numMaxReplicas": 2, "autoscale": "Idle"}),
        [f'{POLICY}.autoscale: Invalid value: "Idle": {checks.NOTHING_TO_SCALE}'],
    ),
    (
        "a word that YAML reads as a boolean",
        job(torchElasticPolicy={"autoscale": False}),
        [f'{POLICY}.autoscale: Unsupported value: false: supported values: "Off", "Idle"'],
    ),
    (
        "a short time without a step",
        job(health={"hangTimeoutSeconds": 59}),
        [f"spec.health.hangTimeoutSeconds: Invalid value: 59: {checks.SHORT_HANG}"],
    ),
    (
        "memory that does not grow",
        growing(factorPercent=100, max="3Gi"),
        [
            f"{GROWTH}.factorPercent: Invalid value: 100: "
            f"{GROWTH}.factorPercent in body should be greater than or equal to 101"
        ],
    ),
    ("memory without a largest amount", growing(), [f"{GROWTH}.max: Required value"]),
    (
        "a largest amount below the declared memory",
        growing(max="2Gi"),
        [f'{GROWTH}.max: Invalid value: "2Gi": {checks.SMALL_MEMORY}, 3Gi'],
    ),
    (
        "memory growth without memory",
        growing(template(cpu=1), max="3Gi"),
        [f'{GROWTH}: Invalid value: "object": {checks.NO_MEMORY}'],
    ),
    (
        "memory growth of a pod with memory of its own",
        growing({"spec": template(memory="2Gi")["spec"] | {"resources": {"limits": {"memory": "8Gi"}}}}, max="3Gi"),
        [f'{GROWTH}: Invalid value: "object": {checks.POD_MEMORY}'],
    ),
    (
        "a negative memory",
        growing(max="-1"),
        [f"{GROWTH}.max: Invalid value: \"-1\": quantity '-1' must not be negative"],
    ),
    (
        "more spot tasks than tasks",
        job(torchTaskSpecs={"Worker": task(spotTaskSpec={"numSpotTasks": 2})}),
        [f"{WORKERS}.spotTaskSpec.numSpotTasks: Invalid value: 2: numSpotTasks must not be greater than numTasks"],
    ),
    (
        "no container",
        job(torchTaskSpecs={"Worker": task(template={"spec": {}})}),
        [f"{WORKERS}.template.spec.containers: Required value"],
    ),
    (
        "an invalid quantity",
        job(torchTaskSpecs={"Worker": task(template=template(cpu="lots"))}),
        [
            f'{WORKERS}.template.spec.containers[0].resources.limits.cpu: Invalid value: "lots": '
            "'lots' is not a quantity: write a number with an optional suffix, as in 500m or 1.5 for cpu, "
            "and 512Mi or 2Gi for memory"
        ],
    ),
    ("no spec", {"metadata": {"name": "a"}}, ["spec: Required value"]),
    ("another kind", job() | {"kind": "Job"}, ['kind: Unsupported value: "Job": supported values: "TorchJob"']),
]


@pytest.mark.parametrize(("manifest", "expected"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refusal_has_the_field_and_message_of_the_api_server(manifest: Any, expected: list[str]) -> None:
    assert problems(manifest) == expected


@pytest.mark.parametrize(
    ("target", "spec", "wanted"),
    [
        (None, {}, 4),
        ({"workers": 6, "wish": 4}, {}, 6),
        ({"workers": 2, "wish": 4}, {}, 2),
        ({"workers": 2, "wish": 3}, {}, 2),
        ({"workers": 6, "wish": 5}, {}, 4),
        ({"workers": 1, "wish": 4}, {}, 4),
        ({"workers": 9, "wish": 4}, {}, 4),
        ({"workers": 2, "wish": 4}, {"torchElasticPolicy": None}, 4),
    ],
    ids=["none", "growth", "giving back", "the wish has risen", "the wish has fallen", "below", "above", "not elastic"],
)
def test_size_wanted_is_that_of_the_target_while_it_is_in_force(
    target: dict[str, Any] | None, spec: dict[str, Any], wanted: int
) -> None:
    policy = {"torchElasticPolicy": {"numMinReplicas": 2, "numMaxReplicas": 8}}
    whole = None if target is None else target | {"reason": "Idle", "since": "2026-01-01T00:00:00Z"}
    found = torchjob.parse(job(torchTaskSpecs={"Worker": task(numTasks=4)}, status={"target": whole}, **policy | spec))
    assert found.wanted_workers == wanted
    assert (found.target is None) is (wanted == 4)


def test_job_of_an_earlier_version_is_neither_scaled_nor_watched_nor_grown() -> None:
    found = torchjob.parse(job(torchElasticPolicy={"numMaxReplicas": 4}, status={"phase": "Running"}))
    policy = found.spec.torch_elastic_policy
    assert policy is not None
    assert (policy.autoscale, policy.resize_every_seconds, policy.min_gain_percent) == ("Off", 300, 0)
    assert (found.spec.health.hang_timeout_seconds, found.spec.health.on_hang) == (0, "Report")
    assert (found.spec.tasks["Worker"].memory_growth, found.status.memory) == (None, {})


def test_memory_of_a_task_is_the_larger_of_request_and_limit_of_its_main_container() -> None:
    parsed = torchjob.parse(growing(max="64Gi")).spec.tasks["Worker"]
    assert parsed.memory_growth is not None
    assert (parsed.memory_growth.factor_percent, memory_growth.most(parsed.memory_growth)) == (150, 64 * 2**30)
    assert memory_growth.declared(parsed.template["spec"]) == 3 * 2**30


def test_all_problems_are_reported_at_once() -> None:
    tasks = {"Worker": task(numTasks=-1, restartPolicy="Sometimes"), "Master": task(dependsOn=[{}])}
    fields = [problem.split(":")[0] for problem in problems(job(torchTaskSpecs=tasks, backoffLimit=-1, extra=1))]
    assert fields == [
        "spec.torchTaskSpecs.Worker.numTasks",
        "spec.torchTaskSpecs.Worker.restartPolicy",
        "spec.torchTaskSpecs.Master.dependsOn[0].taskType",
        "spec.backoffLimit",
        "spec.extra",
    ]


@pytest.mark.parametrize("manifest", [None, [], "TorchJob", 7, {}, {"metadata": 1, "spec": 2}, job(torchTaskSpecs=[1])])
def test_value_other_than_a_job_is_refused(manifest: Any) -> None:
    assert problems(manifest)


def test_error_message_names_each_problem() -> None:
    with pytest.raises(InvalidObject, match=r"spec.a: .*; spec.b: "):
        torchjob.parse(job(a=1, b=2))


def test_template_keeps_unknown_fields() -> None:
    spec = template(cpu=1)["spec"] | {"someFieldOfTomorrow": {"x": [1]}, "hostNetwork": True}
    parsed = torchjob.parse(
        job(torchTaskSpecs={"Worker": task(template={"metadata": {"labels": {"a": "b"}}, "spec": spec})})
    )
    assert parsed.spec.tasks["Worker"].template["spec"] == spec
