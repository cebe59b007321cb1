"""A row for each operation."""

from tests.integration.access import cheap_hash
from tests.integration.cursor_peer import rows_of
from tests.integration.every_call.peers import DEAD, HOLES, JOBS, LOG, NEWS
from tests.integration.every_call.world import Prepared, Row, World, admin, cursor

LINES = [
    {"id": f"m{number}", "payload": "x" * 2_000, "headers": {"k": "v"}, "priority": 2, "expires_at": 1 << 50}
    for number in range(250)
]
"""Messages to import."""


def staged(world: World, attempt: int) -> int:
    for chunk in range(20):
        world.peer.stage(JOBS, rows_of(100), app="app", version=attempt + 1, stage="s", chunk=chunk)
    return attempt + 1


def slow_job(world: World, attempt: int) -> str:
    """A job that has something to do for ten seconds."""
    job = world.peer.admin("job.start", kind="replay", filter={"queue": DEAD}, to=JOBS, limit=2, rate=0.1)
    return str(job["job"])


def exported(world: World, attempt: int) -> str:
    """A job that has written a file; the latest one for each attempt, so that another may be deleted."""
    job = world.peer.admin("job.start", kind="export_dead", filter={"queue": DEAD, "to_id": 1})
    while not (shown := world.peer.admin("job.show", job=job["job"]))["has_result"]:
        assert shown["state"] in ("queued", "running", "waiting", "done"), shown
    return str(job["job"])


def letters(world: World, attempt: int) -> list[int]:
    return [letter["dead_id"] for letter in world.peer.admin("dlq.list", queue=DEAD, limit=1_000)["letters"]]


OPERATION_ROWS: dict[str, Row | Prepared] = {
    "broker.info": admin("broker.info"),
    "broker.metrics": admin("broker.metrics"),
    "broker.overview": admin("broker.overview"),
    "queue.rows": admin("queue.rows", sort="-ready"),
    "history.get": admin("history.get", queue=JOBS, range="48h"),
    "broker.checks": admin("broker.checks"),
    "broker.settings": admin("broker.settings"),
    "listeners.list": admin("listeners.list"),
    "consumer.list": admin("consumer.list", queue=NEWS, limit=1_000),
    "cursor.list": admin("cursor.list", limit=500),
    "transaction.list": admin("transaction.list", limit=1_000),
    "audit.list": admin("audit.list", limit=1_000),
    "broker.reload": admin("broker.reload"),
    "connections.list": admin("connections.list"),
    "connections.consumers": admin("connections.consumers", connection_id="nobody"),
    "connections.close": admin("connections.close", user="nobody"),
    "connections.redirect": admin("connections.redirect", user="nobody", host="localhost", port=1),
    "storage.backup": lambda w, n: w.peer.admin("storage.backup", target=str(w.folder / f"backup-{n}")),
    "queue.create": lambda w, n: w.peer.admin("queue.create", queue=f"created-{n}"),
    "queue.change": admin("queue.change", queue=JOBS, changes={"max_messages": 10**9}),
    "queue.delete": (lambda w, n: w.new_queue(5_000), lambda w, q: w.peer.admin("queue.delete", queue=q)),
    "queue.purge": (lambda w, n: w.new_queue(5_000), lambda w, q: w.peer.admin("queue.purge", queue=q)),
    "queue.remove": (
        lambda w, n: w.new_queue(5_000),
        lambda w, q: w.peer.admin("queue.remove", queue=q, runs=[[s, s] for s in range(1, 5_000, 2)]),
    ),
    "queue.export": lambda w, n: [w.peer.admin("queue.export", queue=q) for q in (JOBS, HOLES, LOG, NEWS)],
    "queue.move": (
        lambda w, n: w.new_scattered_queue(),
        lambda w, q: w.peer.admin("queue.move", queue=q, to=JOBS, limit=1_000),
    ),
    "queue.import": lambda w, n: w.peer.admin("queue.import", queue=JOBS, import_id=str(n), position=0, messages=LINES),
    "message.part": (
        lambda w, n: w.new_large_message(),
        lambda w, q: [w.peer.admin("message.part", queue=q, sequence=1, offset=at) for at in (0, 400_000)],
    ),
    "message.remove": (
        lambda w, n: w.new_queue(5_000),
        lambda w, q: w.peer.admin(
            "message.remove", queue=q, sequences=list(range(1, 1_000, 2)), ids=[f"m{n:05}" for n in range(1_000, 1_500)]
        ),
    ),
    "queue.info": admin("queue.info", queue=LOG),
    "queue.list": admin("queue.list"),
    "queue.peek": admin("queue.peek", queue=JOBS, limit=1_000),
    "message.show": (
        lambda w, n: w.new_large_message(),
        lambda w, q: w.peer.admin("message.show", queue=q, sequence=1, digest=True, length=200_000),
    ),
    "group.list": cursor("group.list", LOG),
    "group.offsets": cursor("group.offsets", LOG, group="g1"),
    "group.advance": cursor("group.advance", LOG, group="g1", from_=1),
    "group.split": cursor("group.split", LOG, group="g1", from_=1, to=10_000, max=4_096),
    "group.fetch": cursor("group.fetch", LOG, group="g1", from_=1, to=10_000),
    "group.join": lambda w, n: w.peer.ask("group.join", HOLES, group=f"new-{n}", start="earliest"),
    "group.commit": (
        lambda w, n: (f"commit-{n}", w.epoch(f"commit-{n}")),
        lambda w, of: w.peer.ask("group.commit", LOG, group=of[0], epoch=of[1], sequence=9_000),
    ),
    "group.plan": (
        lambda w, n: (w.epoch("plan"), n),
        lambda w, of: w.peer.ask("group.plan", LOG, group="plan", epoch=of[0], tag=f"t{of[1]}", end="e" * 1_000),
    ),
    "group.enter": (
        lambda w, n: w.planned(n),
        lambda w, of: w.peer.ask("group.enter", LOG, epoch=of[0], **of[1]),
    ),
    "group.reject": (
        lambda w, n: (f"reject-{n}", w.epoch(f"reject-{n}"))[0],
        lambda w, group: w.peer.ask("group.reject", LOG, group=group, rejects=[[s, "no"] for s in range(1, 2_000)]),
    ),
    "group.quarantine": (
        lambda w, n: (f"quarantine-{n}", w.epoch(f"quarantine-{n}"))[0],
        lambda w, group: w.peer.ask("group.quarantine", LOG, group=group, runs=[[s, s] for s in range(1, 2_000, 2)]),
    ),
    "group.set": cursor("group.set", LOG, group="g2", max_lag_ms=10**9),
    "group.seek": cursor("group.seek", HOLES, group="g1", start="earliest"),
    "group.filter": lambda w, n: w.peer.ask("group.filter", NEWS, group="filtered", where=f"n > {n}"),
    "group.delete": (
        lambda w, n: (w.peer.ask("group.join", HOLES, group=f"old-{n}"), f"old-{n}")[1],
        lambda w, group: w.peer.ask("group.delete", HOLES, group=group),
    ),
    "dlq.list": admin("dlq.list", limit=1_000),
    "dlq.groups": admin("dlq.groups", limit=1_000),
    "dlq.preview": admin("dlq.preview"),
    "dlq.show": admin("dlq.show", dead_id=40_000),
    "dlq.replay": admin("dlq.replay", queue=DEAD, limit=1_000, to=JOBS),
    "dlq.purge": admin("dlq.purge", queue=DEAD, limit=1_000),
    "dlq.edit": (letters, lambda w, ids: w.peer.admin("dlq.edit", dead_id=ids[0], text="edited", to=JOBS)),
    "job.start": admin("job.start", kind="purge_dead", filter={"queue": DEAD, "from_id": 1 << 50}, at_most=1 << 40),
    "job.list": admin("job.list"),
    "job.show": (slow_job, lambda w, job: w.peer.admin("job.show", job=job)),
    "job.change": (slow_job, lambda w, job: w.peer.admin("job.change", job=job, state="cancelled")),
    "backup.list": admin("backup.list"),
    "definitions.import": admin(
        "definitions.import",
        queues=[{"queue": f"q{n}", "options": {"max_attempts": 9}} for n in range(1_000)],
        dry_run=True,
    ),
    "job.result": (exported, lambda w, job: w.peer.admin("job.result", job=job)),
    "job.discard": (exported, lambda w, job: w.peer.admin("job.discard", job=job)),
    "dead.offsets": cursor("dead.offsets", DEAD),
    "dead.fetch": cursor("dead.fetch", DEAD, from_=1, to=1 << 40),
    "dead.redrive": (letters, lambda w, ids: w.peer.ask("dead.redrive", DEAD, ids=ids, to=JOBS)),
    "transaction.commit": (
        staged,
        lambda w, version: w.peer.ask("transaction.commit", app="app", version=version, stages=["s"]),
    ),
    "transaction.abort": (
        lambda w, n: staged(w, 50 + n),
        lambda w, version: w.peer.ask("transaction.abort", app="app", version=version, stages=["s"]),
    ),
    "transaction.last": cursor("transaction.last", "", app="app"),
    "transaction.forget": admin("transaction.forget", app="app"),
    "user.add": lambda w, n: w.peer.admin("user.add", user=f"added-{n}", password_hash=cheap_hash()),
    "user.change": admin("user.change", user="u1", superuser=False),
    # Each of them has very many tokens.
    "user.remove": lambda w, n: w.peer.admin("user.remove", user=f"bearer-{n}"),
    "user.list": admin("user.list"),
    "user.show": admin("user.show", user="u2"),
    "user.password": admin("user.password", user="u2", password="other"),
    "user.grant": admin("user.grant", user="u2", queues="some.*", actions=["publish"]),
    "user.revoke": admin("user.revoke", user="u2", queues="some.*"),
    "user.check": admin("user.check", user="u2", queues="jobs", action="publish"),
    "user.allowed": admin("user.allowed", queues="jobs", action="publish"),
    "user.self": admin("user.self"),
    "token.create": admin("token.create", user="u3"),
    "token.list": admin("token.list"),
    "token.revoke": (
        lambda w, n: w.peer.admin("token.create", user="u4")["token_id"],
        lambda w, token_id: w.peer.admin("token.revoke", token_id=token_id),
    ),
}
