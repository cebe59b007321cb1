"""The broker itself."""

from vibemq.errors import ErrorCode
from vibemq.web.api.contract import Endpoint
from vibemq.web.api.endpoints.shapes import ANYTHING, INSTANT, TEXT, WHOLE, listed, record
from vibemq.web.api.kinds import Kind

BACKUP_TIMEOUT_S = 3600.0

ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/broker",
        summary="Version, uptime, data directory, alarms and storage.",
        operation="broker.info",
        response=record({"version": TEXT, "uptime_ms": WHOLE, "alarms": listed(TEXT)}, {"storage": ANYTHING}),
    ),
    Endpoint(
        method="GET",
        path="/broker/metrics",
        summary="Counters of the broker.",
        operation="broker.metrics",
        response=ANYTHING,
    ),
    Endpoint(
        method="POST",
        path="/broker/reload",
        summary="Read the settings and the TLS files again. What cannot change at run time is named.",
        operation="broker.reload",
        kind=Kind.CHANGE,
        response=record({"changed": listed(TEXT), "needs_restart": listed(TEXT)}),
        errors=(ErrorCode.CONFIG_INVALID,),
        idempotent=True,
    ),
    Endpoint(
        method="GET",
        path="/broker/backups",
        summary="Backups that the broker has written, the latest first, and whether their folders are still there.",
        operation="backup.list",
        response=record(
            {
                "backups": listed(
                    record({"at": INSTANT, "target": TEXT, "user": TEXT}, {"took_ms": WHOLE, "size_bytes": WHOLE})
                )
            }
        ),
    ),
    Endpoint(
        method="POST",
        path="/broker/backups",
        summary="Write a consistent copy of the store into a new folder of the broker's machine.",
        operation="storage.backup",
        kind=Kind.CHANGE,
        response=ANYTHING,
        status=201,
        more_statuses=(200,),
        errors=(ErrorCode.INVALID_OPTIONS, ErrorCode.STORAGE_FULL, ErrorCode.STORAGE_DAMAGED),
        timeout_s=BACKUP_TIMEOUT_S,
        idempotent=True,
    ),
)
