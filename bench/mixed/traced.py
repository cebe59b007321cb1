"""A broker that notes where each message of the small client is: `python -m bench.mixed.traced FILE serve …`.

At its end it writes a JSON line for each message, of instants of CLOCK_MONOTONIC:

    sent       by the client, as the message says
    received   its bytes came to the connection
    handled    the step of the connection that they began has ended
    append     its append began,  appended  and ended, with the bytes of all that was appended together
    asked      the flush that covers it was requested,  begun  in the flush thread,  flushed  there
    told       the loop has heard of it
    written    the confirm was given to the socket
"""

import atexit
import json
import sys
from pathlib import Path
from typing import Any

from bench.mixed.clients import MARK, STAMP, now
from vibemq.model.records import MessagesAdded
from vibemq.server.commit.storage_threads import Store, Told
from vibemq.server.net.transport import Connection
from vibemq.storage.lmdb.provider import LmdbProvider

Instants = dict[str, float]


class Trace:
    """Wraps the broker's own methods; one message is under way at a time."""

    def __init__(self) -> None:
        self.done: list[Instants] = []
        self._message: Instants | None = None
        self._connection: Connection | None = None
        self._flush: Instants | None = None

    def install(self) -> None:
        receive, give, append = Connection.data_received, Connection._give, LmdbProvider.append
        sync, try_sync, begin_sync = LmdbProvider.sync, LmdbProvider.try_sync, Store.begin_sync

        def data_received(connection: Connection, data: bytes) -> None:
            at = data.find(MARK, 0, 512)
            if at >= 0:
                self._connection = connection
                (sent,) = STAMP.unpack_from(data, at + len(MARK))
                self._message = {"sent": sent, "received": now()}
                receive(connection, data)
                self._message["handled"] = now()
            else:
                receive(connection, data)

        def appended(provider: LmdbProvider, records: Any) -> int:
            began = now()
            lsn = append(provider, records)
            if self._message is not None and "append" not in self._message:
                rows = [record.rows for record in records if type(record) is MessagesAdded]
                self._message |= {"append": began, "appended": now(), "append_bytes": sum(row.size for row in rows)}
            return lsn

        def begun(store: Store, told: Told) -> None:
            message, flush = self._message, None
            if message is not None and "appended" in message and "asked" not in message:
                flush = message
                message["asked"] = now()

            def heard(error: BaseException | None, took_s: float) -> None:
                if flush is not None:
                    flush["told"] = now()
                told(error, took_s)

            self._flush = flush
            begin_sync(store, heard)

        def synced(provider: LmdbProvider) -> int:
            flush = self._flush
            if flush is not None:
                flush["begun"] = now()
            lsn = sync(provider)
            if flush is not None:
                flush["flushed"] = now()
            return lsn

        def tried(provider: LmdbProvider) -> int | None:
            began = now()
            lsn = try_sync(provider)
            message = self._message
            if lsn is not None and message is not None and "appended" in message and "asked" not in message:
                message |= {"asked": began, "begun": began, "flushed": (ended := now()), "told": ended}
            return lsn

        def given(connection: Connection, data: bytes) -> None:
            give(connection, data)
            if connection is self._connection and self._message is not None:
                self._message["written"] = now()
                self.done.append(self._message)
                self._message = None

        for owner, name, wrapper in (
            (Connection, "data_received", data_received),
            (Connection, "_give", given),
            (LmdbProvider, "append", appended),
            (LmdbProvider, "sync", synced),
            (LmdbProvider, "try_sync", tried),
            (Store, "begin_sync", begun),
        ):
            setattr(owner, name, wrapper)


def main() -> None:
    path = Path(sys.argv.pop(1))
    trace = Trace()
    trace.install()
    atexit.register(lambda: path.write_text("".join(json.dumps(message) + "\n" for message in trace.done)))
    from vibemq.cli import run

    run()


if __name__ == "__main__":
    main()
