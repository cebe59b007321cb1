"""The HTTP API: a contract of endpoints (`contract`, `endpoints/`), what every request passes (`app`, `guardrails/`),
and its description. It asks `vibemq.operations` through the broker and knows no engine, no storage and no socket."""
