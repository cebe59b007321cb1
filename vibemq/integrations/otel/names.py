"""Names of OpenTelemetry's semantic conventions for messaging, which are not stable yet (state of 1.38), and ours.

Source: https://opentelemetry.io/docs/specs/semconv/messaging/
"""

from typing import Final

SCOPE: Final = "vibemq"
SYSTEM: Final = "vibemq"

MESSAGING_SYSTEM: Final = "messaging.system"
DESTINATION: Final = "messaging.destination.name"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGE_ID: Final = "messaging.message.id"
BODY_SIZE: Final = "messaging.message.body.size"
BATCH_COUNT: Final = "messaging.batch.message_count"
GROUP: Final = "messaging.consumer.group.name"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"
ATTEMPT: Final = "vibemq.attempt"
SEQUENCE: Final = "vibemq.sequence"

SEND: Final = "send"
PROCESS: Final = "process"

OPERATION_DURATION: Final = "messaging.client.operation.duration"
SENT: Final = "messaging.client.sent.messages"
CONSUMED: Final = "messaging.client.consumed.messages"
PROCESS_DURATION: Final = "messaging.process.duration"
