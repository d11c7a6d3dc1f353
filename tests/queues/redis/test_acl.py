"""Redis with accounts and TLS: what each account may do, and which error a failed login raises."""

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from rq import Queue
from rq.serializers import JSONSerializer

from coordinator.reports.report_store import RedisReports
from coordinator.reports.report_values import ArrivedReport, Report
from crds.keys import JobKey
from queues import errors, redis_keys
from queues.dispatch import rq_worker
from queues.dispatch.intake import Intake
from queues.dispatch.redis_work import RedisWork
from queues.dispatch.rq_job import bind
from queues.dispatch.task_runner import TaskRunner
from queues.redis import acl, connection, fitness
from queues.redis import url as redis_url
from queues.registrations import StoreIdentity
from queues.storage.redis_store import RedisStore
from queues.store import IdleGrowth, LoweredCharge, StoreSettings
from queues.tasks import Offer
from queues.values import Batch
from queues.work import Lease
from tests.support.queues.builders import START, choose, commit, entry, key, registration, reservation, spec
from tests.support.queues.guarded import READS, RULES, WORKS, WRITES, Guarded, guarded

SECRETS = (WRITES, READS, RULES, WORKS)
Do = Callable[[Any], Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def admin(server: Guarded) -> Iterator["redis.Redis"]:
    client = server.admin()
    client.flushall()
    client.acl_log_reset()
    yield client
    client.close()


@pytest.fixture
def opened(server: Guarded) -> Iterator[Callable[[str], connection.Connection]]:
    clients: list[connection.Connection] = []

    def open_(url: str) -> connection.Connection:
        clients.append(connection.connect(url, client_name="test", retries=0))
        return clients[-1]

    yield open_
    for client in clients:
        client.close()


Open = Callable[[str], connection.Connection]


def content(admin: "redis.Redis") -> dict[bytes, Any]:
    return {name: admin.dump(name) for name in admin.keys("*")}


def filled(client: connection.Connection) -> RedisStore:
    """Return a store with a reservation and waiting jobs."""
    store = RedisStore(client, StoreSettings(ports=(20_000, 20_009)))
    store.rebuild(1, [reservation("held", cpu=1)], [entry("later", submitted=START + 1)])
    store.configure([spec("a", cpu=9)], {"cpu": 9})
    store.put([entry("first", cpu=1)])
    return store


def picks(store: RedisStore) -> Batch:
    return choose(store.snapshot(8), START, 8, "jobs")


def finish(work: RedisWork, taken: list[Lease]) -> set[JobKey]:
    """Do what a worker does with leased keys, and return the keys: one ends, one is due again, one has failed."""
    tasks = work.begin(taken)
    work.renew(taken)
    assert all(work.holds(task.key, task.token) for task in tasks)
    (held,) = (task for task in tasks if task.key == key("first"))
    assert held.reservation is not None
    assert work.raise_charge(held.key, held.token, held.reservation.attempt, {"memory": 1}) == ""
    for task, after in zip(tasks, (None, 0.0, 5.0), strict=True):
        work.finish(task.key, task.token, requeue_after=after, failed=after == 5.0)
    return {task.key for task in tasks}


def test_coordinator_account_may_run_every_command_of_a_job_lifecycle(
    server: Guarded, admin: "redis.Redis", opened: Open
) -> None:
    client = opened(server.url())
    store = filled(client)
    assert len(commit(store, picks(store)).reservations) == 2
    work = RedisWork(client)
    work.register(registration("w1", 4))
    work.offer([Offer(key=key("other"), tenant="a", kind="tells"), Offer(key=key("slow"), tenant="a", delay=60)])
    work.offer([Offer(key=key("other"), tenant="a", kind="ends")])
    assert work.dispatch() == 3
    assert work.shorten_leases() == 0
    taken: list[Lease] = []
    for _ in range(3):
        one_batch(server.url(), taken)
    assert finish(work, taken) == {key("first"), key("later"), key("other")}
    assert store.reservations([key("first")])
    assert store.incarnation()
    assert store.problem() == ""
    store.put([entry("held", kind="grow", cpu=1)])
    store.withdraw([key("held")])
    smaller = LoweredCharge(key=key("held"), attempt=1, grown=0, size=0, charge={"jobs": 1})
    assert store.lower([smaller], 0) == []
    growth = IdleGrowth(key=key("held"), attempt=1, grown=0, workers=1, charge={"cpu": 1})
    assert store.grow_idle([growth], 1, 1) == [""]
    store.remove([key("first")])
    reports = RedisReports(client)
    reports.keep([ArrivedReport(job=key("held"), report=Report(pod="held-worker-0", step=1))])
    assert reports.read([key("held")])
    assert store.inspect().faults == work.inspect().faults == ()
    store.forget(1)
    work.forget(1)
    assert admin.acl_log() == []


def test_coordinator_account_lets_a_worker_register_reject_hostile_jobs_and_clean_up(
    server: Guarded, admin: "redis.Redis", caplog: pytest.LogCaptureFixture
) -> None:
    hostile = Queue(redis_keys.RQ_QUEUE, connection=admin, serializer=JSONSerializer).enqueue("os.system", "true")
    admin.zadd(redis_keys.RQ_STARTED, {"dead:run": 1})
    admin.hset("rq:job:dead", mapping={"data": '["torchq.reconcile", null, [[]], {}]', "status": "started"})
    one_batch(server.url(), [])
    assert admin.zscore(redis_keys.RQ_REGISTRIES["failed"], hostile.id)
    assert admin.zscore(redis_keys.RQ_REGISTRIES["failed"], "dead"), "the job of a dead worker is cleaned up"
    assert admin.scard("rq:workers") == 0
    assert admin.acl_log() == []
    assert not [record for record in caplog.records if any(secret in record.getMessage() for secret in SECRETS)]


def one_batch(url: str, taken: list[Lease]) -> None:
    """Run a worker until it has taken one job from RQ."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    worker = rq_worker.Sessions(url, "w", bind(taken.extend)).open()
    turns = iter((False, True))
    open_intake = Intake()
    open_intake.learn(StoreIdentity(0, 0, ""))
    try:
        worker.loop(_Idle(), lambda: next(turns), open_intake)  # type: ignore[arg-type]
    finally:
        worker.connection.close()
        for number, handler in handlers.items():
            signal.signal(number, handler)


class _Idle(TaskRunner):
    """A task runner whose threads are always free."""

    def __init__(self) -> None:
        self._changed = threading.Condition()

    def wait_for_room(self, _: float) -> int:
        return 1


@pytest.mark.parametrize(
    "command",
    [
        ("FLUSHALL",),
        ("CONFIG", "GET", "*"),
        ("ACL", "LIST"),
        ("CLIENT", "LIST"),
        ("SCRIPT", "FLUSH"),
        ("DEBUG", "SLEEP", "0"),
        ("KEYS", "*"),
        ("SHUTDOWN",),
        ("PUBLISH", "rq:pubsub:x", "x"),
        ("MONITOR",),
        ("SET", "somebody:else", "1"),
        ("GET", "somebody:else"),
        ("EVAL", "return redis.call('SET', 'somebody:else', '1')", "0"),
        ("EVAL", "return redis.call('FLUSHALL')", "0"),
    ],
)
def test_no_account_may_run_admin_commands_or_touch_foreign_keys(
    server: Guarded, admin: "redis.Redis", opened: Open, command: tuple[str, ...]
) -> None:
    admin.set("somebody:else", "x")
    before = content(admin)
    for url in (server.url(), server.worker, server.reader):
        client = opened(url)
        with pytest.raises(errors.QueueError), connection.translate_errors(client):
            client.execute_command(*command)
    assert content(admin) == before


def test_account_of_workers_may_do_what_workers_do(server: Guarded, admin: "redis.Redis", opened: Open) -> None:
    leading, client = opened(server.url()), opened(server.worker)
    store = filled(leading)
    assert len(commit(store, picks(store)).reservations) == 2
    work, offers = RedisWork(client), RedisWork(leading)
    assert fitness.problem(client) == ""
    work.register(registration("w1", 4))
    offers.offer([Offer(key=key("other"), tenant="a", kind="tells")])
    assert offers.dispatch() == 3
    taken: list[Lease] = []
    for _ in range(3):
        one_batch(server.worker, taken)
    finish(work, taken)
    RedisReports(leading).keep([ArrivedReport(job=key("held"), report=Report(pod="held-worker-0", step=1))])
    assert RedisReports(client).read([key("held")])
    assert admin.acl_log() == []


NOT_OF_WORKERS = {
    *(redis_keys.EPOCH, redis_keys.LAYOUT, redis_keys.OWNER, redis_keys.REVISION, redis_keys.QUEUES, redis_keys.RULES),
    *(redis_keys.POOL, redis_keys.COUNTED, redis_keys.COHORTS, redis_keys.ENTRIES, redis_keys.ACCOUNTS),
    *(redis_keys.CLOCK, redis_keys.OVERTAKEN, f"{redis_keys.ORDER}a", f"{redis_keys.REPORTS}a"),
}


def test_account_of_workers_changes_no_settings_order_accounts_or_reports(
    server: Guarded, admin: "redis.Redis", opened: Open
) -> None:
    filled(opened(server.url()))
    before = content(admin)
    client = opened(server.worker)
    for name in sorted(NOT_OF_WORKERS):
        for command in (("DEL", name), ("EVAL", "return redis.call('DEL', ARGV[1])", "0", name)):
            with pytest.raises(errors.QueueError), connection.translate_errors(client):
                client.execute_command(*command)
    assert content(admin) == before


def test_server_whose_facts_its_account_may_not_read_is_not_led_on(
    server: Guarded, admin: "redis.Redis", opened: Open
) -> None:
    admin.execute_command("ACL", "SETUSER", acl.WRITER.name, "-info")
    try:
        client = opened(server.url())
        wanted = "does not let this user call INFO"
        assert wanted in RedisStore(client).problem()
        assert wanted in fitness.read_problem(client)
        admin.execute_command("ACL", "SETUSER", acl.WRITER.name, "+info")
        assert RedisStore(client).problem() == fitness.read_problem(client) == ""
    finally:
        admin.execute_command("ACL", "SETUSER", acl.WRITER.name, "+info")


def test_reader_account_reads_all_data(server: Guarded, admin: "redis.Redis", opened: Open) -> None:
    store = filled(opened(server.url()))
    RedisWork(opened(server.url())).offer([Offer(key=key("first"), tenant="a")])
    reader = opened(server.reader)
    assert RedisStore(reader).epoch() == 1
    assert RedisStore(reader).snapshot(8) == store.snapshot(8)
    known = store.snapshot(8)
    store.put([entry("more")])
    following = RedisStore(reader)
    assert following.snapshot(8).whole
    assert following.snapshot(8, known.change) == store.snapshot(8, known.change)
    assert not following.snapshot(8, known.change, ["a"]).whole
    assert following.place(key("more")) == store.place(key("more"))
    assert RedisStore(reader).reservations() == store.reservations()
    assert RedisStore(reader).inspect() == store.inspect()
    admin.config_set("maxmemory", "1gb")
    admin.config_set("maxmemory-policy", "allkeys-lru")
    assert "evicts keys when it is full" in RedisStore(reader).inspect().unfit
    admin.config_set("maxmemory-policy", "noeviction")
    assert RedisStore(reader).inspect().unfit == ""
    admin.config_set("maxmemory", "0")
    assert RedisWork(reader).inspect().records.keys() == {key("first")}
    assert admin.acl_log() == []


@pytest.mark.parametrize(
    "write",
    [
        lambda client: RedisStore(client).rebuild(9, [], []),
        lambda client: RedisStore(client).configure([], None),
        lambda client: RedisStore(client).put([entry("more")]),
        lambda client: RedisStore(client).remove([key("held")]),
        lambda client: commit(RedisStore(client), picks(RedisStore(client))),
        lambda client: RedisStore(client).forget(9),
        lambda client: RedisWork(client).forget(9),
        lambda client: RedisWork(client).offer([Offer(key=key("more"), tenant="a")]),
        lambda client: RedisWork(client).dispatch(),
        lambda client: RedisWork(client).register(registration("w", 1)),
        lambda client: RedisWork(client).begin([(key("first"), "t")]),
        lambda client: RedisWork(client).renew([(key("first"), "t")]),
        lambda client: RedisWork(client).finish(key("first"), "t"),
        lambda client: client.set("torchq:epoch", 5),
        lambda client: client.delete("torchq:epoch"),
        lambda client: client.hset("rq:job:x", "data", "x"),
        lambda client: client.rpush(redis_keys.RQ_WAITING, "x"),
        lambda client: client.eval("return redis.call('SET', 'torchq:epoch', '5')", 0),
    ],
)
def test_reader_account_cannot_change_data(server: Guarded, admin: "redis.Redis", opened: Open, write: Do) -> None:
    writer = opened(server.url())
    filled(writer)
    work = RedisWork(writer)
    work.register(registration("w1", 4))
    work.offer([Offer(key=key("first"), tenant="a")])
    work.dispatch()
    work.offer([Offer(key=key("next"), tenant="a")])
    admin.delete(redis_keys.RQ_WAITING)
    admin.hset("torchq:work:records", str(key("first")), '{"state":"leased","token":"t"}')
    before = content(admin)
    reader = opened(server.reader)
    with pytest.raises(errors.CredentialsRefused), connection.translate_errors(reader):
        write(reader)
    assert content(admin) == before


# Logins


def test_connect_succeeds_with_password_and_mutual_tls(server: Guarded, admin: "redis.Redis", opened: Open) -> None:
    client = opened(server.tls())
    assert filled(client).snapshot(1).epoch == 1
    assert connection.address(client) == f"rediss://127.0.0.1:{server.port}/0"
    assert connection.is_reachable(server.tls())
    assert connection.is_reachable(server.url())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ssl_ca_certs": ""}, "certificate verify failed"),
        ({"ssl_certfile": "", "ssl_keyfile": ""}, "does not answer"),
        ({"host": "localhost"}, "certificate"),
    ],
)
def test_connect_fails_without_a_valid_certificate_on_both_sides(
    server: Guarded, opened: Open, options: dict[str, str], words: str
) -> None:
    with pytest.raises(errors.StoreUnreachable, match=words) as refused:
        RedisStore(opened(server.tls(**options))).epoch()
    assert not any(secret in str(refused.value) for secret in SECRETS)


def test_plaintext_connection_to_a_tls_port_is_unreachable(server: Guarded, opened: Open) -> None:
    url = f"redis://torchq:{WRITES}@127.0.0.1:{server.port}/0"
    with pytest.raises(errors.StoreUnreachable) as refused:
        RedisStore(opened(url)).epoch()
    assert WRITES not in str(refused.value)
    assert not connection.is_reachable(url)


@pytest.mark.parametrize("password", ["", "wr0ng"])
def test_missing_or_wrong_password_raises_credentials_refused(server: Guarded, opened: Open, password: str) -> None:
    url = server.url("torchq", password) if password else f"unix://{server.socket}"
    with pytest.raises(errors.CredentialsRefused, match="refuses these credentials"):
        RedisStore(opened(url)).epoch()
    with pytest.raises(errors.CredentialsRefused):
        connection.is_reachable(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3cret",
        "redis://:s3cret",
        "redis://:s3/cret@host",
        "redis://:s3cret/1@host/0",
        "redis://:12/s3cret@host",
        "redis://u:s3cret#x@host:1/2",
        "redis://u:12?s3cret@host",
        "redis://u:s3cret@host:port/0",
        "redis://u:s3cret@host:0/0",
        "redis://u:s3cret@host/none",
        "redis://u:s3cret@host/0?s3cret=1",
        "redis://u:s3cret@host/0?ssl_ca_certs=/etc/hosts",
        "redis://u:s3cret@host/0?db=s3cret",
        "redis://u:s3cret@/0",
        "rediss://u:s3cret@host/0?ssl_cert_reqs=sometimes",
        "rediss://u:s3cret@host/0?ssl_ca_certs=/nowhere/ca.crt",
        "unix://u:s3cret@host/run/redis.sock",
        "unix://:s3/cret@/run/redis.sock",
        "unix://u:s3cret@",
        "http://u:s3cret@host",
    ],
)
def test_invalid_url_is_rejected_without_showing_its_password(url: str) -> None:
    with pytest.raises(errors.BadAddress, match="Redis URL") as refused:
        connection.connect(url, client_name="test")
    for part in ("s3cret", "s3", "cret", "12"):
        assert part not in str(refused.value)
    assert not any(part in redis_url.redact(url) for part in ("s3", "cret"))


def test_connect_names_a_missing_key_file() -> None:
    with pytest.raises(errors.BadAddress, match=r"ssl_keyfile: /nowhere/key: No such file"):
        connection.connect("rediss://:x@host/0?ssl_keyfile=/nowhere/key", client_name="test")


@pytest.mark.parametrize(
    ("url", "has"),
    [
        ("redis://host", False),
        ("redis://user@host", False),
        ("unix:///run/redis.sock?db=1", False),
        ("redis://:p@host", True),
        ("redis://:p/q@host", True),
        ("unix:///run/redis.sock?password=p", True),
    ],
)
def test_has_password_finds_a_password_in_a_url(url: str, has: bool) -> None:
    assert redis_url.has_password(url) is has


def test_deployed_acl_file_matches_the_generated_one() -> None:
    deployed = Path(__file__).parents[3] / "deploy" / "redis" / "users.acl"
    assert deployed.read_text() == acl.acl(), "run: torchq redis acl > deploy/redis/users.acl"
    assert WRITES not in acl.acl(WRITES, READS)
