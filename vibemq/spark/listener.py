"""Lag of every query, for whoever watches them."""

from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from vibemq.spark.read.reporting import Lag, lag

_METRICS = (
    ("vibemq_spark_lag_messages", "Messages that the query has not acknowledged.", "messages"),
    ("vibemq_spark_lag_bytes", "Estimated bytes that the query has not acknowledged.", "bytes"),
    ("vibemq_spark_lag_age_milliseconds", "Age of the oldest message not acknowledged.", "age_ms"),
)


class LagListener(StreamingQueryListener):
    """`spark.streams.addListener(LagListener(callback))`.

    Args:
        callback: called as callback(name, lag) after each progress report; the name is the query's, or its id.
    """

    def __init__(self, callback: Callable[[str, Lag], object] | None = None) -> None:
        self._callback = callback
        self.lags: dict[str, Lag] = {}
        """The last report of each running query."""
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress
        found = lag(progress)
        if found is not None:
            name = progress.name or str(progress.id)
            self._names[str(progress.id)] = name
            self.lags[name] = found
            if self._callback is not None:
                self._callback(name, found)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self.lags.pop(self._names.pop(str(event.id), ""), None)

    def prometheus(self) -> str:
        """The lags in the text format of Prometheus."""
        lines = []
        for metric, meaning, attribute in _METRICS:
            lines += [f"# HELP {metric} {meaning}", f"# TYPE {metric} gauge"]
            for name, whole in sorted(self.lags.items()):
                for queue, one in sorted(whole.queues.items()):
                    value = getattr(one, attribute)
                    lines.append(f'{metric}{{query="{_escaped(name)}",queue="{_escaped(queue)}"}} {value}')
        return "\n".join([*lines, ""])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
