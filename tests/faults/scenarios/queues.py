"""Scenarios in which jobs wait, are admitted, moved, sent back and deleted."""

from tests.faults.scenarios import people
from tests.faults.scenarios.scenario import NAMESPACE, ONE, Scenario, pair, task

BIGGER = {"Worker": {"numTasks": 2}}
ELASTIC = {"torchElasticPolicy": {"numMaxReplicas": 2}, "cleanPodPolicy": "All"}
THREE = {"torchTaskSpecs": {"Master": task(), "Worker": task(2, dependsOn=[])}}
CANCELLED = ("runs", "starts", "new", "waits", "held", "paused")
"""The jobs that are cancelled, each in another phase. The jobs are deleted after their time to live."""
SCENARIOS = (
    Scenario(name="life", queues={"a": {}}, jobs={"one": {}}, ends={"one": "Succeeded"}),
    Scenario(
        name="clean",
        queues=ONE,
        jobs={"one": {"cleanPodPolicy": "All"}, "two": {"cleanPodPolicy": "All"}},
        ends={"one": "Succeeded", "two": "Succeeded"},
    ),
    Scenario(
        name="quota",
        queues=ONE,
        jobs={"one": {}, "two": {}},
        ends={"one": "Succeeded", "two": "Succeeded"},
    ),
    Scenario(
        name="namespace-quota",
        queues={"a": {}, "b": {}},
        jobs={"one": {}, "two": {}, "three": {"queue": "b"}},
        ends=dict.fromkeys(("one", "two", "three"), "Succeeded"),
        most_pods=3,
        patience=40.0,
    ),
    Scenario(
        name="hostile",
        queues={"a": {"quota": {"cpu": "2", "jobs": "1"}, "namespaces": [NAMESPACE]}},
        jobs={"one": {}, "two": {}},
        ends={"one": "Succeeded", "two": "Succeeded"},
        steps=((people.all_over("one", "two"), people.take_back("kube-system")),),
        hostile=True,
    ),
    Scenario(
        name="added",
        queues={"a": {"quota": {"memory": "5000000", "jobs": "2"}}},
        jobs={"one": THREE, "two": THREE},
        ends={"one": "Succeeded", "two": "Succeeded"},
        adds={"memory": "1000000"},
    ),
    Scenario(
        name="added-to-the-pool",
        queues={"a": {}, "b": {}},
        jobs={"one": {}, "two": {"queue": "b"}, "three": {"cleanPodPolicy": "All"}},
        ends=dict.fromkeys(("one", "two", "three"), "Succeeded"),
        pool="memory=3000000,cpu=6",
        adds={"memory": "1000000"},
    ),
    Scenario(
        name="pool",
        queues={"a": {}, "b": {"weight": 2}},
        jobs={"one": {}, "two": {"queue": "b"}, "three": {"queue": "b"}},
        ends=dict.fromkeys(("one", "two", "three"), "Succeeded"),
        pool="cpu=4",
    ),
    Scenario(
        name="ports",
        queues={"a": {}},
        jobs={"one": {}, "two": {}, "three": {}},
        ends=dict.fromkeys(("one", "two", "three"), "Succeeded"),
        ports=(20_000, 20_001),
    ),
    Scenario(
        name="suspend",
        loose=True,
        queues=ONE,
        jobs={"one": {}, "two": {}},
        ends={"one": "Succeeded", "two": "Succeeded"},
        steps=(
            (people.phase("one", "Running"), people.change("one", suspend=True)),
            (people.phase("one", "Suspended", "Succeeded"), people.change("one", suspend=False)),
        ),
    ),
    Scenario(
        name="resume",
        loose=True,
        queues=ONE,
        jobs={"one": {}, "two": {}},
        ends={"one": "Succeeded", "two": "Succeeded"},
        steps=(
            (people.phase("one", "Admitted", "Running"), people.change("one", suspend=True)),
            (people.at_once, people.change("one", suspend=False)),
        ),
    ),
    Scenario(
        name="cancel",
        loose=True,
        queues={"a": {"quota": {"jobs": "2"}}},
        jobs={
            "runs": {"schedulingPolicy": {"priority": 9}},
            "starts": {"schedulingPolicy": {"priority": 9}, "torchTaskSpecs": {**pair(), "Slow": task(dependsOn=[])}},
            "new": {},
            "waits": {},
            "held": {"schedulingPolicy": {"hold": True}},
            "paused": {"suspend": True},
            "next": {},
        },
        ends={"next": "Succeeded"},
        steps=(
            (people.at_once, people.change("new", cancel=True)),
            (people.phase("waits", "Queued"), people.change("waits", cancel=True)),
            (people.said("held", "Held"), people.change("held", cancel=True)),
            (people.phase("paused", "Suspended"), people.change("paused", cancel=True)),
            (people.phase("starts", "Admitted"), people.change("starts", cancel=True)),
            (people.phase("runs", "Running"), people.change("runs", cancel=True)),
        ),
        stalls=lambda task_type, *_: task_type == "slow",
        until=lambda jobs: all(name not in jobs or people.phase(name, "Failed")(jobs) for name in CANCELLED),
        never=lambda jobs: any(people.phase(name, "Succeeded")(jobs) for name in CANCELLED),
        settings={"cancelled_ttl_seconds": 20},
        patience=25.0,
    ),
    Scenario(
        name="delete",
        queues=ONE,
        jobs={"one": {}, "two": {}},
        ends={"two": "Succeeded"},
        steps=((people.phase("one", "Admitted", "Running"), people.delete("one")),),
    ),
    Scenario(
        name="move",
        queues={"a": {"stopPolicy": "Hold"}, "b": {"quota": {"jobs": "1"}}},
        jobs={"one": {}, "two": {"queue": "b"}},
        ends={"one": "Succeeded", "two": "Succeeded"},
        steps=((people.at_once, people.change("one", schedulingPolicy={"queue": "b"})),),
    ),
    Scenario(
        name="edit",
        queues={"a": {"quota": {"cpu": "4"}}},
        jobs={"one": {"cleanPodPolicy": "All"}, "two": {"cleanPodPolicy": "All"}},
        ends={"one": "Succeeded", "two": "Succeeded"},
        steps=((people.phase("one", "Queued", "Admitted"), people.change("one", torchTaskSpecs=BIGGER)),),
    ),
    Scenario(
        name="resize",
        loose=True,
        queues={"a": {"quota": {"cpu": "5"}}},
        jobs={"one": ELASTIC, "two": ELASTIC},
        ends={"one": "Succeeded", "two": "Succeeded"},
        steps=(
            (people.phase("one", "Admitted", "Running"), people.change("one", torchTaskSpecs=BIGGER)),
            (
                people.phase("one", "Queued", "Running"),
                people.change("one", torchTaskSpecs={"Worker": {"numTasks": 1}}),
            ),
        ),
    ),
    Scenario(
        name="late",
        queues=ONE,
        jobs={"one": {}},
        ends={"one": "Succeeded"},
        stuck=1,
        settings={"admission_timeout": 15, "admission_backoff": 5, "admission_tries": 100},
    ),
    Scenario(
        name="drain",
        loose=True,
        queues=ONE,
        jobs={"one": {}, "two": {}},
        ends={"one": "Succeeded", "two": "Succeeded"},
        steps=(
            (people.phase("one", "Running"), people.queue_change("a", stopPolicy="HoldAndDrain")),
            (people.phase("one", "Queued", "Succeeded"), people.queue_change("a", stopPolicy="None")),
        ),
    ),
    Scenario(
        name="elsewhere",
        queues={"a": {"namespaces": ["others"]}},
        jobs={"one": {}, "two": {"queue": "later"}},
        ends={"one": "Succeeded", "two": "Succeeded"},
        steps=(
            (people.at_once, people.queue_change("a", namespaces=[NAMESPACE])),
            (people.at_once, people.new_queue("later")),
        ),
    ),
)
