"""The root logger of a process that is a broker, and the audit's."""

import logging
import sys

from vibemq.config import Log
from vibemq.server.access.audit import AUDIT
from vibemq.server.logs.formats import JsonFormatter, TextFormatter
from vibemq.server.logs.line_writer import LineWriter
from vibemq.server.logs.strangers import StrangersFilter

FLUSH_S_MAX = 2.0
"""For a reader that stands still while the process ends."""


class LineHandler(logging.Handler):
    """Gives formatted records to a writer, and does not wait for it but in `flush`."""

    def __init__(self, writer: LineWriter, formatter: logging.Formatter) -> None:
        super().__init__()
        self._writer = writer
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._writer.put(_line(self.format(record)))
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        self._writer.flush(FLUSH_S_MAX)


class ProcessLog:
    """`start` once, before anything is logged; `set_up` with each change of the settings."""

    def __init__(self) -> None:
        self._formatter: logging.Formatter = TextFormatter()
        self._writer = LineWriter(sys.stderr.fileno(), self._left_out_line)

    def start(self, log: Log) -> None:
        """Raises RuntimeError when the system allows no more threads."""
        self._writer.start()
        self.set_up(log)

    def flush(self) -> None:
        """Before somebody else writes to stderr."""
        self._writer.flush(FLUSH_S_MAX)

    def set_up(self, log: Log) -> None:
        self._formatter = JsonFormatter() if log.format == "json" else TextFormatter()
        handler = LineHandler(self._writer, self._formatter)
        handler.addFilter(StrangersFilter())
        logging.basicConfig(level=log.level.upper(), handlers=[handler], force=True)
        self._set_up_audit()

    def _set_up_audit(self) -> None:
        """JSON lines for whoever collects them, whatever people want to read."""
        audit = logging.getLogger(AUDIT)
        audit.handlers = [LineHandler(self._writer, JsonFormatter())]
        audit.setLevel(logging.INFO)
        audit.propagate = False

    def _left_out_line(self, count: int) -> bytes:
        record = logging.makeLogRecord(
            {
                "name": "vibemq.log",
                "levelno": logging.WARNING,
                "levelname": "WARNING",
                "msg": "%d records of this log were left out here: its reader stood still, or its disk was full",
                "args": (count,),
                "event": "log.left_out",
                "left_out": count,
            }
        )
        return _line(self._formatter.format(record))


def _line(text: str) -> bytes:
    """In the encoding of stderr, which a log has had from the beginning."""
    return f"{text}\n".encode(sys.stderr.encoding, "backslashreplace")
