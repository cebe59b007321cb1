"""Every call of every door on a crowded broker: what `test_every_call.py` walks. Peers block, in a thread of their own.

A row is given the world and the number of the attempt, and returns when its call has been answered, or when an answer
that comes behind it has.
"""

import socket
import struct
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from tests.integration.access import PASSWORD, cheap_hash
from tests.integration.cursor_peer import FRAME_MAX, rows_of
from tests.integration.cursor_peer import Peer as CursorPeer
from vibemq.model.records import tag_of
from vibemq.model.rows import Rows, RowView, pack_row
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body
from vibemq.protocols.omq.frames import Frame as OmqFrame
from vibemq.protocols.omq.frames import MessageFrame, OmqFrameReader, Ping, SubscribedFrame, UnsubscribedFrame

DEAD, LOG, JOBS, HOLES, NEWS = "dead", "log", "jobs", "holes", "news"
"""Queues: of the dead letters; read by very many groups; for messages; one message of two is gone; a fan-out to very
many groups."""
MANY_ROWS = 2_000
BODY = b'"twenty bytes of it"'
ROOT = "root"
EXTENSIONS = "batch/1,cursor/1,admin/1,settle/1"
PLAIN_EXTENSIONS = "settle/1"
"""Of a peer that is handed each message in a frame of its own, and names it by its id."""


class Peer(CursorPeer):
    def __init__(self, port: int, extensions: str = EXTENSIONS) -> None:
        credentials = {"authUsername": ROOT, "authPassword": PASSWORD}
        super().__init__(port, headers={"supported-extensions": extensions, **credentials})

    def frame(self, kind: CommandType, queue: str = "", payload: bytes = b"", **headers: str) -> None:
        self.send(encode_body(kind, "f", queue, payload, {name.replace("_", "-"): v for name, v in headers.items()}))

    def until(self, kind: CommandType) -> bytes:
        while (body := self.receive())[1] not in (kind, CommandType.ERROR):
            pass
        return body

    def settled(self) -> None:
        """Everything that was sent before has been decided."""
        self.frame(CommandType.QUEUE_INFO, "q1")
        self.until(CommandType.QUEUE_INFO)

    def take(self, queue: str, count: int) -> None:
        """Subscribe, and receive so many."""
        self.send(encode_body(CommandType.SUBSCRIBE, "s", queue, b"", {"prefetch": str(count)}))
        while count > 0:
            count -= extensions.parse_deliver_many(self.until(CommandType.DELIVER_MANY)).rows.count

    def take_plain(self, queue: str, count: int) -> list[str]:
        """The same of a peer without batches."""
        self.frame(CommandType.SUBSCRIBE, queue)
        return [decode_body(self.until(CommandType.DELIVER)).id for _ in range(count)]

    def send_all(self, bodies: list[bytes]) -> None:
        """In one piece: the broker reads as many of them together as it ever does."""
        self._socket.sendall(b"".join(encode_frame(body, body_bytes_max=FRAME_MAX) for body in bodies))


class World:
    """A broker's doors."""

    def __init__(self, native: int, omq: int, http: str, folder: Path, is_quiet: Callable[[], bool]) -> None:
        """`is_quiet`: nobody but `peer` is connected, and nothing is left to do for those who were."""
        self.is_quiet = is_quiet
        self.native, self.omq, self.http, self.folder = native, omq, http, folder
        self.peer = Peer(native)
        self._others: list[Peer | OmqPeer] = []
        """Peers of the last attempt."""
        self._drafts = 0

    def connect(self, extensions: str = EXTENSIONS) -> Peer:
        peer = Peer(self.native, extensions)
        self._others.append(peer)
        return peer

    def connect_omq(self) -> "OmqPeer":
        peer = OmqPeer(self.omq)
        self._others.append(peer)
        return peer

    def hang_up(self) -> None:
        for peer in self._others:
            peer.close()
        self._others.clear()

    def close(self) -> None:
        self.hang_up()
        self.peer.close()

    def new_queue(self, messages: int = 0, **options: Any) -> str:
        self._drafts += 1
        name = f"draft-{self._drafts}"
        self.peer.admin("queue.create", queue=name, options=options)
        for first in range(0, messages, 1_000):
            numbers = range(first, min(first + 1_000, messages))
            self.peer.publish(name, Rows.of([pack_row(f"m{number:05}", BODY) for number in numbers]))
        return name

    def new_scattered_queue(self) -> str:
        """One message of two is gone, and some are delayed."""
        name = self.new_queue(5_000)
        self.peer.admin("queue.remove", queue=name, runs=[[s, s] for s in range(1, 5_000, 2)])
        return name

    def new_large_message(self) -> str:
        name = self.new_queue()
        self.peer.publish(name, Rows.of([pack_row("large", b"x" * 900_000)]))
        return name

    def epoch(self, group: str) -> int:
        return int(self.peer.ask("group.join", LOG, group=group)["epoch"])

    def planned(self, number: int) -> tuple[int, dict[str, Any]]:
        """The epoch of a reader, and what it calls the batch that it has planned."""
        epoch, group = self.epoch(f"enter-{number}"), f"enter-{number}"
        self.peer.ask("group.plan", LOG, group=group, epoch=epoch, tag="t", end="e")
        return epoch, {"group": group, "tag": "t", "end": tag_of("e"), "query": group, "batch": number}


LINES = [
    {"id": f"m{number}", "payload": "x" * 2_000, "headers": {"k": "v"}, "priority": 2, "expires_at": 1 << 50}
    for number in range(250)
]
"""Messages to import."""
Row = Callable[[World, int], object]
Prepared = tuple[Callable[[World, int], Any], Callable[[World, Any], object]]
"""What has to be there before the call, which is given it."""


def admin(name: str, **arguments: Any) -> Row:
    return lambda world, attempt: world.peer.admin(name, **arguments)


def cursor(name: str, queue: str, **arguments: Any) -> Row:
    return lambda world, attempt: world.peer.ask(name, queue, **arguments)


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


# -- frames of the native protocol ------------------------------------------------------------------------------------


def connected(world: World, attempt: int) -> Peer:
    return world.connect()


def consuming(count: int) -> Callable[[World, int], Peer]:
    def prepare(world: World, attempt: int) -> Peer:
        peer = world.connect()
        peer.take(world.new_queue(count), count)
        return peer

    return prepare


def sent(*bodies: bytes) -> Callable[[World, Peer], object]:
    def call(world: World, peer: Peer) -> None:
        for body in bodies:
            peer.send(body)
        peer.settled()

    return call


def asked(kind: CommandType, answer: CommandType, queue: str = "", payload: bytes = b"", **headers: str) -> Row:
    def call(world: World, attempt: int) -> bytes:
        world.peer.frame(kind, queue, payload, **headers)
        body = world.peer.until(answer)
        assert body[1] == answer, decode_body(body).error_message
        return body

    return call


def subscribed(world: World, peer: Peer) -> None:
    peer.take(JOBS, 10_000)


def unsubscribed(world: World, peer: Peer) -> None:
    peer.frame(CommandType.UNSUBSCRIBE, JOBS, subscription_id="s")
    peer.until(CommandType.UNSUBSCRIBE_ACK)


def left(world: World, peer: Peer) -> None:
    """A connection that holds very much ends."""
    peer.frame(CommandType.DISCONNECT)
    peer.close()
    world.peer.settled()


Holding = tuple[Peer, list[str]]
"""And the ids of the messages that it holds, of which no two are neighbours in the queue."""


def holding(count: int) -> Callable[[World, int], Holding]:
    def prepare(world: World, attempt: int) -> Holding:
        peer = world.connect(PLAIN_EXTENSIONS)
        return peer, peer.take_plain(world.new_queue(2 * count), 2 * count)[::2]

    return prepare


def spoken(kind: CommandType, **headers: str) -> Callable[[World, Holding], object]:
    """A frame for each message, all of them in one piece."""

    def call(world: World, holding: Holding) -> None:
        peer, ids = holding
        peer.send_all([encode_body(kind, message_id, headers=headers) for message_id in ids])
        peer.settled()

    return call


REQUESTS = 5_000
Asking = tuple[Peer, str]
"""And the queue of its requests."""


def asking(world: World, attempt: int) -> Asking:
    return world.connect(f"{EXTENSIONS},{extensions.REQUEST_EXTENSION}"), world.new_queue()


def requested(world: World, asking: Asking) -> Asking:
    """Very many requests wait for their replies."""
    peer, queue = asking
    row = pack_row("m", BODY)
    peer.send_all([extensions.request(f"r{number}", queue, row, 600_000) for number in range(REQUESTS)])
    peer.settled()
    return asking


def having_requested(world: World, attempt: int) -> Asking:
    return requested(world, asking(world, attempt))


def addressed(world: World, attempt: int) -> tuple[Peer, list[str]]:
    """The addresses to which replies may go."""
    peer, queue = having_requested(world, attempt)
    peer.send(encode_body(CommandType.SUBSCRIBE, "s", queue, b"", {"prefetch": str(REQUESTS)}))
    addresses: list[str] = []
    while len(addresses) < REQUESTS:
        rows = extensions.parse_deliver_many(peer.until(CommandType.DELIVER_MANY)).rows
        addresses += [RowView(row).headers["reply-to"] for row in rows]
    return peer, addresses


def replied(world: World, addressed: tuple[Peer, list[str]]) -> None:
    peer, addresses = addressed
    row = pack_row("m", BODY)
    peer.send_all([extensions.response(f"a{number}", address, row) for number, address in enumerate(addresses)])
    for _ in addresses:
        peer.until(CommandType.RESPONSE)


def purged(world: World, asking: Asking) -> None:
    peer, queue = asking
    world.peer.admin("queue.purge", queue=queue)
    told_of_errors(peer)


def deleted(world: World, asking: Asking) -> None:
    peer, queue = asking
    world.peer.admin("queue.delete", queue=queue)
    told_of_errors(peer)


def told_of_errors(peer: Peer) -> None:
    for _ in range(REQUESTS):
        assert peer.until(CommandType.ERROR)


def given_up(world: World, asking: Asking) -> None:
    asking[0].close()
    world.peer.settled()


SCATTERED = [(sequence, sequence) for sequence in range(1, 10_000, 2)]
AS_MANY_AS_FIT = [(sequence, sequence) for sequence in range(1, 130_000, 2)]
"""Runs, into one frame."""
ANSWERS = {
    CommandType.CONNECT_ACK,
    CommandType.PONG,
    CommandType.PUBLISH_ACK,
    CommandType.SUBSCRIBE_ACK,
    CommandType.UNSUBSCRIBE_ACK,
    CommandType.DELIVER,
    CommandType.PUBLISH_MANY_ACK,
    CommandType.DELIVER_MANY,
    CommandType.DELIVER_SCATTERED,
    CommandType.SUBSCRIPTION_ENDED,
    CommandType.CURSOR_REPLY,
    CommandType.COLUMNS,
    CommandType.ERROR,
}
"""Types of frames that only the broker sends."""


def of_users(kind: CommandType, **fields: Any) -> Row:
    """A frame as .NET clients send it; `{}` in a field stands for the number of the attempt."""

    def call(world: World, attempt: int) -> bytes:
        filled = {name: v.format(attempt) if isinstance(v, str) else v for name, v in fields.items()}
        return asked(kind, kind, payload=orjson.dumps(filled))(world, attempt)  # type: ignore[return-value]

    return call


FRAME_ROWS: dict[CommandType, Row | Prepared] = {
    CommandType.CONNECT: connected,
    CommandType.DISCONNECT: (consuming(10_000), left),
    CommandType.PING: asked(CommandType.PING, CommandType.PONG),
    CommandType.PUBLISH: asked(CommandType.PUBLISH, CommandType.PUBLISH_ACK, JOBS, b'"x"'),
    CommandType.SUBSCRIBE: (connected, subscribed),
    CommandType.UNSUBSCRIBE: (consuming(10_000), unsubscribed),
    CommandType.ACK: (holding(5_000), spoken(CommandType.ACK)),
    CommandType.NACK: (holding(2_000), spoken(CommandType.NACK)),
    CommandType.EXTEND: (holding(2_000), spoken(CommandType.EXTEND)),
    CommandType.CREATE_QUEUE: lambda w, n: asked(CommandType.CREATE_QUEUE, CommandType.CREATE_QUEUE, f"made-{n}")(w, n),
    CommandType.DELETE_QUEUE: (
        lambda w, n: w.new_queue(1_000),
        lambda w, q: asked(CommandType.DELETE_QUEUE, CommandType.DELETE_QUEUE, q)(w, 0),
    ),
    CommandType.QUEUE_INFO: asked(CommandType.QUEUE_INFO, CommandType.QUEUE_INFO, LOG),
    CommandType.LIST_QUEUES: asked(CommandType.LIST_QUEUES, CommandType.LIST_QUEUES),
    CommandType.PUBLISH_MANY: lambda w, n: w.peer.publish(JOBS, rows_of(MANY_ROWS)),
    CommandType.SETTLE: (consuming(10_000), sent(extensions.settle("s", 0, AS_MANY_AS_FIT))),
    CommandType.EXTEND_MANY: (
        consuming(10_000),
        sent(extensions.extend_many("s", SCATTERED, ack_timeout_ms=90_000)),
    ),
    CommandType.FLOW: (
        consuming(10),
        sent(extensions.flow("s", capacity_messages=5, capacity_bytes=100, add_credit=0)),
    ),
    CommandType.REQUEST: (asking, requested),
    CommandType.RESPONSE: (addressed, replied),
    CommandType.ADMIN: admin("queue.info", queue="q1"),
    CommandType.CURSOR_REQUEST: cursor("group.offsets", LOG, group="g3"),
    CommandType.STAGE: lambda w, n: w.peer.stage(JOBS, rows_of(MANY_ROWS), app="other", version=n + 1, stage="s"),
    CommandType.ADMIN_CREATE_USER: of_users(CommandType.ADMIN_CREATE_USER, username="net-{}", password="secret"),
    CommandType.ADMIN_DELETE_USER: of_users(CommandType.ADMIN_DELETE_USER, username="holder-{}"),
    CommandType.ADMIN_CHANGE_PASSWORD: of_users(CommandType.ADMIN_CHANGE_PASSWORD, username="u5", newPassword="other"),
    CommandType.ADMIN_GRANT_PERMISSION: of_users(
        CommandType.ADMIN_GRANT_PERMISSION, username="u5", queuePattern="more.*", operations=["Publish"]
    ),
    CommandType.ADMIN_REVOKE_PERMISSION: of_users(
        CommandType.ADMIN_REVOKE_PERMISSION, username="u5", queuePattern="more.*"
    ),
    CommandType.ADMIN_LIST_USERS: asked(CommandType.ADMIN_LIST_USERS, CommandType.ADMIN_LIST_USERS),
    CommandType.ADMIN_GET_USER_PERMISSIONS: of_users(CommandType.ADMIN_GET_USER_PERMISSIONS, username="u5"),
}


def told_to_all(world: World, attempt: int) -> None:
    world.peer.publish(NEWS, rows_of(100))
    world.peer.settled()


def of_one_error(world: World, attempt: int) -> dict[str, Any]:
    [group] = world.peer.admin("dlq.groups", queue=DEAD, reason="expired", limit=1)["groups"]
    return dict(group)


def all_groups(world: World) -> None:
    after: dict[str, Any] = {}
    while after.get("after", "") is not None:
        after = {"after": world.peer.admin("dlq.groups", limit=1_000, **after)["next"]}


CROWD_ROWS: dict[str, Row | Prepared] = {
    "dead letters of a queue, newest first": admin("dlq.list", queue=DEAD, order="newest", limit=1_000),
    "dead letters for a reason": admin("dlq.list", reason="expired", limit=1_000),
    "dead letters for a reason that none has": admin("dlq.list", queue=DEAD, reason="overflow"),
    "dead letters of one error": (
        of_one_error,
        lambda w, g: w.peer.admin("dlq.list", queue=DEAD, reason="expired", fingerprint=g["fingerprint"]),
    ),
    "dead letters of one error, of any queue": (
        of_one_error,
        lambda w, g: w.peer.admin("dlq.list", fingerprint=g["fingerprint"], order="newest"),
    ),
    "dead letters that no group has room for": admin("dlq.list", queue=DEAD, fingerprint="0" * 16, limit=1_000),
    "dead letters by age": admin("dlq.list", since=40_000, until=41_000, limit=1_000),
    "dead letters by id": admin("dlq.list", from_id=30_000, to_id=30_900, limit=1_000),
    "dead letters by a text that none has": admin("dlq.list", error="elsewhere"),
    "dead letters by a header that none has": admin("dlq.list", queue=DEAD, header={"a": "b"}),
    "dead letters that were replayed": admin("dlq.list", replayed=True, order="newest"),
    "all groups of dead letters": lambda w, a: all_groups(w),
    "a preview by a text": admin("dlq.preview", error="snow"),
    "a preview by age": admin("dlq.preview", since=10_000),
    "a preview by a header": admin("dlq.preview", header={"a": "b"}),
    "publish to very many groups": told_to_all,
    "the purge of a queue with very many requests": (having_requested, purged),
    "the deletion of a queue with very many requests": (having_requested, deleted),
    "the end of a connection with very many requests": (having_requested, given_up),
}
"""What another row does, where it meets more."""


# -- commands of the OCaml message queue ------------------------------------------------------------------------------


class OmqPeer:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._reader = OmqFrameReader()
        self._inbox: deque[OmqFrame] = deque()
        self.say(struct.pack("!q", 1) + f"(Connect 1 {ROOT}:{PASSWORD})\n".encode())
        assert self.socket.recv(8, socket.MSG_WAITALL) == struct.pack("!q", 1)

    def say(self, data: bytes) -> None:
        self.socket.sendall(data)

    def close(self) -> None:
        self.socket.close()

    def until(self, kind: type[OmqFrame], count: int = 1) -> OmqFrame:
        """The last of so many frames of the kind; the others are passed over."""
        while count:
            while not self._inbox:
                self._reader.receive_data(self.socket.recv(1 << 20))
                self._inbox += self._reader.frames()
            frame = self._inbox.popleft()
            count -= isinstance(frame, kind)
        return frame

    def settled(self) -> None:
        """Everything that was said before has been decided."""
        self.say(b"(Subscribe q2 From_current)\n")
        self.until(SubscribedFrame)


OMQ_MESSAGES = 10_000
"""As many as a subscription may have before an Ack settles them."""
Told = tuple[OmqPeer, str]
"""And a queue that is full of messages."""


def omq_told(world: World, attempt: int) -> Told:
    return world.connect_omq(), world.new_queue(OMQ_MESSAGES)


def omq_holding(world: World, attempt: int) -> Told:
    """Subscribed, and every message is there."""
    peer, queue = omq_told(world, attempt)
    omq_subscribed(world, (peer, queue))
    return peer, queue


def omq_subscribed(world: World, told: Told) -> None:
    peer, queue = told
    peer.say(b"(Subscribe %b From_current)\n" % queue.encode())
    peer.until(MessageFrame, OMQ_MESSAGES)


def omq_unsubscribed(world: World, told: Told) -> None:
    peer, queue = told
    peer.say(b"(Unsubscribe %b)\n" % queue.encode())
    peer.until(UnsubscribedFrame)


def omq_pinged(world: World, attempt: int) -> tuple[OmqPeer, int]:
    """Holding all of a queue, and a ping behind the messages whose Ack settles them."""
    peer, _ = omq_holding(world, attempt)
    ping = peer.until(Ping)
    assert isinstance(ping, Ping)
    return peer, ping.second


def omq_acked(world: World, pinged: tuple[OmqPeer, int]) -> None:
    """And as many more commands as are read together, which settle nothing."""
    peer, second = pinged
    peer.say(b"(Ack %d)\n" % second + b"(Ack 1)\n" * 20_000)
    peer.settled()


OMQ_ROWS: dict[str, Row | Prepared] = {
    "Connect": lambda w, n: w.connect_omq(),
    "OmqSubscribe": (omq_told, omq_subscribed),
    "OmqUnsubscribe": (omq_holding, omq_unsubscribed),
    "Ack": (omq_pinged, omq_acked),
}


# -- pages of the HTTP server -----------------------------------------------------------------------------------------


def page(world: World, path: str) -> bytes:
    try:
        with urllib.request.urlopen(world.http + path, timeout=60) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        return error.read()


def prepare(row: Row | Prepared, world: World, attempt: int) -> Callable[[], object]:
    """Make what the call needs, and return the call."""
    if not isinstance(row, tuple):
        return lambda: row(world, attempt)
    before, call = row
    made = before(world, attempt)
    return lambda: call(world, made)
