"""One peer of the broker, whatever its bytes travel on: drives a session of any protocol. No socket.

    in       receive -> session.receive_data -> session.commands -> admission -> decider
    effects  take (from the session's release queue) -> session.apply, or the delivery queue for deliveries
    out      collect, once per loop turn: delivery_queue.pump -> session.data_to_send -> whoever carries the bytes

The carrier (`vibemq.server.net.transport`, or a peer of the broker's own) says how many bytes it has room for, writes
what `collect` returns, and calls `part` when it has written the last of them or has lost its peer.
"""

import logging
from collections.abc import Callable, Iterator, Sequence

from vibemq.engine import Batch
from vibemq.errors import RemoteProtocolError, StorageError, VibeMQError, forget_frames
from vibemq.model.commands import CloseSession, Command, Extend, SetFlow, Settle, Settlement
from vibemq.model.effects import ConsumerEnded, Deliver, Effect, Reply
from vibemq.model.runs import Run
from vibemq.protocols.session import Principal, Session
from vibemq.server.access.admission import PeerAdmission
from vibemq.server.commit.release_order import ReleaseQueue, told_to_nobody
from vibemq.server.net.delivery_queue import DeliveryQueue
from vibemq.server.net.driving.requests import PeerRequests
from vibemq.server.net.driving.services import PeerServices
from vibemq.server.net.driving.works import PeerWorks
from vibemq.storage.reading import Piece

log = logging.getLogger("vibemq.connection")

EXTEND_LEAST_MS = 250
"""What waits to be written is extended no more often. With an ack timeout that is shorter it may be late."""


class PeerDriver:
    """A session, its place among the others, and what is under way for it. Everything runs on the event loop.

    Args:
        number: of the session.
        connection_id, host: for logs, and for what is counted by address.
        certified: users for whom its TLS certificate stands, known or not.
        wake: asks for a `collect` soon.
        protocol: its name, for the audit log.
    """

    def __init__(
        self,
        services: PeerServices,
        session: Session,
        guard: PeerAdmission,
        *,
        number: int,
        connection_id: str,
        host: str,
        wake: Callable[[], None],
        protocol: str,
        certified: tuple[str, ...] = (),
    ) -> None:
        self._clock = services.clock
        self._metrics = services.metrics
        self._decider = services.decider
        self._effect_router = services.effect_router
        self._authenticator = services.authenticator
        self._operations = services.operations
        self._command_audit = services.operations.command_audit
        self._fatal = services.fatal
        self.session = session
        self.guard = guard
        self.number = number
        self.connection_id = connection_id
        self.host = host
        self.protocol = protocol
        self.logged_in: Principal | None = None
        self.certified = certified
        self.wake = wake
        self.scheduled_tick: int | None = None
        """Instant of the nearest tick that the timers know for this session."""
        self.pending = 0
        """Requests answered by tasks of their own (credentials, admin verbs) that are under way."""
        self.kept = False
        """Something has come that nobody has looked at: `work_off` is due."""
        self.leaving = False
        """Nothing more is read; only what was asked is still answered."""
        self.broken = False
        """A fault of ours: the peer is told so with `last_word`, and that is the end."""
        self.parted = False
        """The peer is gone; the engine closes the session once what was asked before is decided."""
        self._works = PeerWorks(services.decider, services.store, services.fatal)
        self._requests = PeerRequests(self._works, guard, services.authenticator, services.operations, services.metrics)
        self._written: dict[int, list[Run]] = {}
        """What nobody acknowledges and has been written, by consumer; it is settled with the next `collect`."""
        self._extend_at: int | None = None
        """When what waits to be written must be extended; None: nothing waits that has a time to settle."""
        self._told = 0
        """Instant of the session's last tick."""
        self._farewell = ""
        self._dismissed = False
        """Requests under way are not waited for."""
        self._halted = False
        """The engine has been told to hand out nothing more to the session."""
        self._clean = False
        self._fails = False
        """What it holds counts as failed, however it leaves."""
        self.release_queue: ReleaseQueue = services.effect_router.connect(number, self.take)
        self.delivery_queue = DeliveryQueue(
            session,
            services.store,
            delivered=self._delivered,
            damaged=self._damaged,
            wake=self.wake,
            failed=self.read_failed,
        )
        self._keeps_back = session.keeps_back
        self.row_to_send = session.row_to_send
        """A large row behind the bytes that the session has given."""

    @property
    def ending(self) -> bool:
        """Gone, or only waiting for its last answers."""
        return self.parted or self.leaving

    @property
    def busy(self) -> bool:
        """A batch is being decided step by step, or the session has enough for now: nothing more should be read from
        the peer."""
        return bool(self._works.lined_up) or self.session.reads_nothing_more

    @property
    def hears_answers(self) -> bool:
        """Requests under way are answered, also while the peer is leaving: the goodbye waits for them. Who was
        dismissed hears no more."""
        return not (self.parted or self.broken or self._dismissed)

    @property
    def client_name(self) -> str:
        """What the peer calls itself."""
        return self.session.client_name

    @property
    def principal(self) -> Principal | None:
        return self.session.principal

    # -- bytes in -----------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> bool:
        """What the peer has sent; b"" is its end of stream. Returns whether the session keeps it back for a while."""
        if self.parted or self.leaving:
            return False
        self._hear(data)
        if self._keeps_back():
            return True
        self.process()
        return False

    def keep(self, data: bytes) -> None:
        """The same, but `work_off` is called later."""
        if not (self.parted or self.leaving):
            self.kept = True
            self._hear(data)

    def _hear(self, data: bytes) -> None:
        try:
            self.session.receive_data(data)
        except Exception:
            self.give_up("what a peer has sent could not be read")

    def work_off(self) -> None:
        """What was kept."""
        self.kept = False
        self.process()

    def process(self) -> None:
        """Take what the session has understood, have it decided, and write what is due in this turn."""
        self._take_requests()
        self.wake()

    def _tick_session(self) -> None:
        """Before effects are applied and deliveries encoded, always: the session has no other clock."""
        now = self._clock.now()
        if now != self._told:
            self._told = now
            self.session.tick(now)

    def _take_requests(self, *, told: bool = False) -> None:
        """`told`: the session knows the time, and nothing was read since."""
        try:
            if not told:
                self._told = self._clock.now()
                self.session.tick(self._told)
            works, asked = self._works, self._requests
            if asked.waiting and not works.lined_up:
                asked.handle(self)
            while not (works.lined_up or self.leaving) and (requests := self.session.commands()):
                asked.waiting.extend(requests)
                asked.handle(self)
                if self.session.unread:
                    break
            if self.session.unread and not (works.lined_up or self.leaving):
                works.pause(self)
        except RemoteProtocolError as error:
            self._metrics.errors += 1
            fields = {"event": "conn.broken", "conn_id": self.connection_id, "remote": self.host}
            log.info("peer broke the protocol: %s", error, extra=fields)
            # The session may keep it.
            forget_frames(error)
            self.leave(clean=False)
        except Exception:
            self._requests.waiting.clear()
            self.give_up("a request could not be handled")

    def decide(self, commands: Sequence[Command]) -> None:
        """See `PeerWorks`."""
        self._works.decide(self, commands)

    # -- effects in ---------------------------------------------------------------------------------------------------

    def take(self, effects: Sequence[Effect]) -> None:
        """Receive what the engine decided for this session, in order."""
        self._command_audit.note(effects)
        if self.parted:
            for effect in effects:
                if isinstance(effect, Deliver):
                    self.delivery_queue.add(effect)
            return
        try:
            now: list[Effect] = []
            for effect in effects:
                if isinstance(effect, Deliver):
                    self.delivery_queue.add(effect)
                    self._note_timeout(effect.ack_timeout_ms)
                elif self._ends_deliveries(effect) and self.delivery_queue:
                    self.delivery_queue.add(effect)
                else:
                    now.append(effect)
            if now:
                self._tick_session()
                self.session.apply(now)
        except Exception:
            self.give_up("an answer could not be encoded")
        self.wake()

    def _ends_deliveries(self, effect: Effect) -> bool:
        return isinstance(effect, ConsumerEnded) or (isinstance(effect, Reply) and effect.ends_deliveries)

    def _note_timeout(self, ack_timeout_ms: int) -> None:
        """The engine counts from the hand-out. The peer's time begins when a message is written, so what still waits
        after a quarter of it is extended."""
        if ack_timeout_ms:
            due = self._clock.now() + max(ack_timeout_ms // 4, EXTEND_LEAST_MS)
            if self._extend_at is None or due < self._extend_at:
                self._extend_at = due

    def _extend_unwritten(self) -> None:
        self._extend_at = None
        if self.leaving:
            return
        unwritten = [deliver for deliver in self.delivery_queue.unwritten() if deliver.ack_timeout_ms]
        for deliver in unwritten:
            self._note_timeout(deliver.ack_timeout_ms)
        # Behind what is decided in steps it would wait, and the next one behind it.
        if unwritten and not self._works.lined_up:
            held = _by_consumer(unwritten)
            commands = [Extend(self.number, None, consumer, runs, own=True) for consumer, runs in held.items()]
            self._works.decide(self, commands, asked=False)

    def _delivered(self, deliver: Deliver, piece: Piece, runs: list[Run]) -> None:
        if deliver.settled:
            self._written.setdefault(deliver.consumer, []).extend(runs)
        metrics, now = self._metrics, self._clock.now()
        metrics.delivered += piece.count
        metrics.delivery_latency_ms_sum += sum((now - part.published_at) * part.rows.count for part in piece.slices)

    def _damaged(self, deliver: Deliver, piece: Piece) -> None:
        """Damaged rows are never delivered: they leave the queue for its DLQ, which keeps what is known of them."""
        count = sum(last - first + 1 for first, last in piece.damaged)
        self._metrics.damaged_messages += count
        log.error(
            "%d messages of queue %s are damaged (%s): %s", count, deliver.queue, piece.damaged[:10], piece.damage
        )
        reason = f"stored bytes are damaged: {piece.damage}"
        self.decide([Settle(self.number, None, deliver.consumer, Settlement.REJECT, piece.damaged, reason=reason)])

    def read_failed(self, error: BaseException) -> None:
        if isinstance(error, StorageError):
            self._fatal(error)
        else:
            self.give_up("rows could not be read", error)

    def answer(self, token: object, result: object) -> None:
        """The answer of a request that a task of its own carried out, behind what is on its way."""
        self.release_queue.tell([Reply(self.number, token, result)])

    # -- bytes out ----------------------------------------------------------------------------------------------------

    def collect(self, room: int) -> tuple[bytes, bool]:
        """The bytes to write now, of deliveries about as many as there is room for; and whether they are the last."""
        self._pump(room)
        if not self.delivery_queue:
            self._extend_at = None
        if self._written:
            # The peer has not asked for that, and hears nothing of it.
            self._works.decide(self, self._settle_written(), asked=False)
        if self.broken:
            return b"", False
        if self.session.closing:
            self.leaving = True
        if self.leaving:
            self._hand_back()
        finished = self._finished()
        data = self.session.data_to_send()
        # Whatever the peer hears now stands behind what it has settled: the answer to a ping says so.
        if (data or finished) and not self._works.are_appended and not self._decider.append_now():
            return b"", False
        return data, finished

    def last_word(self) -> bytes:
        """Instead of `collect`, for a broken one."""
        self.session.fail(VibeMQError("an internal error of the broker ends this connection; its log has the reason"))
        return self.session.data_to_send()

    def set_flow(self, *, open_: bool) -> None:
        """Whether the engine may hand out to this session."""
        self._decider.decide([SetFlow(self.number, open_)])

    def _pump(self, room: int) -> None:
        """May find that the session has failed: then nothing more is written here. Behind its last word nothing is."""
        if not self.delivery_queue or self.delivery_queue.reading or self.leaving or self.session.closing:
            return
        if room > 0:
            self._tick_session()
            self.delivery_queue.pump(room)
            # Encoding may have turned a row down; what the session wants done about it stands in its commands. What
            # was kept waits for its turn, and that stands in front of it.
            if not self.kept:
                self._take_requests(told=True)

    def _finished(self) -> bool:
        """Whether everything that was asked is answered and it is time to part; then the goodbye is said."""
        if not self.leaving or self.release_queue.waiting or self._works.lined_up:
            return False
        if self.pending and not self._dismissed:
            return False
        if self._farewell:
            self.session.shutdown(self._farewell)
            self._farewell = ""
        return True

    def _hand_back(self) -> None:
        """Have nothing more handed out to a session that leaves, and what was not written given to others unharmed."""
        deliveries, others = self.delivery_queue.take_back()
        commands = self._releases(deliveries)
        if not self._halted:
            self._halted = True
            commands.insert(0, SetFlow(self.number, False))
        if commands:
            self.decide(commands)
        if others:
            self.session.apply(others)

    def _settle_written(self) -> list[Command]:
        written, self._written = self._written, {}
        return [Settle(self.number, None, consumer, Settlement.ACK, runs) for consumer, runs in written.items()]

    def _releases(self, deliveries: Sequence[Deliver]) -> list[Command]:
        return [
            Settle(self.number, None, consumer, Settlement.RELEASE, runs)
            for consumer, runs in _by_consumer(deliveries).items()
        ]

    def part(self) -> None:
        """The session ends for the engine: what the peer has not heard of goes back unharmed, the rest as it ends.

        At once when there is little to take back and no crowd is leaving, else soon: see `Pacer`.
        """
        if self.parted:
            return
        self.parted = True
        self._works.add(self, self._closing(self.delivery_queue.take_back()[0]))
        steps = self.session.let_go()
        if steps is not None:
            self._works.add(self, steps)

    def _closing(self, unwritten: list[Deliver]) -> Iterator[None]:
        """What it had still asked for, and the end, whatever fails before it: a session that was never closed would be
        handed messages for ever. Its release queue stays until then: what is handed out to it meanwhile goes back,
        too."""
        yield from self._all_the_same(self._last_steps())
        releases = self._releases(unwritten + self.delivery_queue.take_back()[0] + self.release_queue.take_back())
        clean, unbegun = self._how_it_left()
        if releases := [*releases, *unbegun]:
            # Nothing of it is handed out to the session again.
            batch = Batch([SetFlow(self.number, False), *releases])
            yield from self._all_the_same(self._decider.steps(batch))
        yield from self._all_the_same(self._decider.steps(Batch([CloseSession(self.number, clean)])))
        self._effect_router.disconnect(self.number)
        self._operations.forget(self.number)
        self._authenticator.logged_out(self)
        self._let_go()

    def _all_the_same(self, steps: Iterator[None]) -> Iterator[None]:
        """A fault of ours ends them, and nothing behind them."""
        try:
            yield from steps
        except Exception as error:
            self.give_up("what a connection has left could not be handled", error)

    def _last_steps(self) -> Iterator[None]:
        yield from self._decider.steps(Batch([*self._settle_written(), *self._requests.last(self)]))
        while self._read_on():
            yield
            yield from self._decider.steps(Batch(self._requests.last(self)))

    def _how_it_left(self) -> tuple[bool, Sequence[Command]]:
        """Whether cleanly, and what it was given and has not begun with when it did not."""
        try:
            has_left = self._requests.said_goodbye or self.session.has_left
            clean = (self._clean or has_left) and not self._fails
            return clean, () if clean else self.session.unbegun()
        except Exception as error:
            self.give_up("it is not known how a connection has left", error)
            return False, ()

    def _read_on(self) -> bool:
        """Take requests that came before the end and that nobody has looked at, also what came behind a batch that is
        decided in steps; whether there may be more."""
        if self.leaving:
            return False
        self.kept = False
        try:
            self._tick_session()
            requests = self.session.commands()
        except RemoteProtocolError:
            self.leaving = True
        except Exception:
            self.give_up("a request could not be handled")
        else:
            self._requests.waiting.extend(requests)
            return bool(requests) or self.session.unread
        return False

    def _let_go(self) -> None:
        """Refer to nobody who refers to this: the memory is free at once, without a search for cycles."""
        self.delivery_queue.close()
        self.wake = told_to_nobody

    # -- time and the end ---------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        try:
            deadline = self.session.next_deadline()
        except Exception:
            self.give_up("the next deadline is not known")
            return None
        if self._extend_at is None:
            return deadline
        return self._extend_at if deadline is None else min(deadline, self._extend_at)

    def tick(self) -> None:
        """A deadline has come; `process` tells the session the time."""
        if self._extend_at is not None and self._clock.now() >= self._extend_at:
            try:
                self._extend_unwritten()
            except Exception:
                self.give_up("what waits to be written could not be extended")
        self.process()

    def goodbye(self, reason: str) -> None:
        """The broker stops: answer what was asked, tell the peer, and leave cleanly."""
        self._farewell = reason
        self.leave(clean=True)

    def dismiss(self, reason: str, *, clean: bool = True) -> None:
        """The peer has lost the right to be here: what was decided is confirmed, what is under way it never hears.

        Args:
            clean: what it holds goes back unharmed; else as after a lost connection.
        """
        if not self._dismissed:
            self._dismissed = True
            self._fails = not clean
            self.goodbye(reason)

    def redirect(self, host: str, port: int) -> bool:
        """Tell the peer to connect elsewhere; False: its protocol has no word for that, or it is leaving."""
        if self.leaving or not self.session.redirect(host, port):
            return False
        self.process()
        return True

    def leave(self, *, clean: bool) -> None:
        self.leaving = True
        self._clean = clean
        self.wake()

    def stop_reading(self, *, clean: bool = False) -> None:
        """The connection is being cut; nothing more is taken from it.

        Args:
            clean: through no fault of the peer: what it holds goes back unharmed.
        """
        self.leaving = True
        self._clean = self._clean or clean

    def failed(self, error: Exception) -> None:
        """A task of this connection has let an exception through."""
        self.give_up("a request could not be answered", error)

    def give_up(self, what: str, error: BaseException | None = None) -> None:
        """Log the fault whole, tell the peer with the next flush, and end this connection and nothing else.

        May be called while effects are being told: nothing is decided here.
        """
        self._metrics.errors += 1
        log.error("%s; the connection is closed", what, exc_info=error or True, extra={"conn_id": self.connection_id})
        self.leaving = self.broken = True
        self.wake()


def _by_consumer(deliveries: Sequence[Deliver]) -> dict[int, list[Run]]:
    held: dict[int, list[Run]] = {}
    for deliver in deliveries:
        held.setdefault(deliver.consumer, []).extend(deliver.runs)
    return held
