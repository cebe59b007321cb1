"""The control messages: the schema that both codecs follow, and the classes that sessions use.

Field names are those of the wire in Python's spelling: `sub_id_info` is subIdInfo. An attribute that may be None is
not written when it is. Source: docs/spec/blazingmq.md, "Control messages".
"""

from dataclasses import dataclass
from enum import IntEnum

from vibemq.protocols.blazingmq.codec.schema import Scalar, choice, element, mandatory, sequence

INT, UINT, LONG, ULONG = Scalar.INT, Scalar.UINT, Scalar.LONG, Scalar.ULONG
BOOL, STRING, BYTES = Scalar.BOOL, Scalar.STRING, Scalar.BYTES

DEFAULT_APP_ID = "__default"
PRIORITY_MIN = -(1 << 31)
"""The priority of a consumer that receives nothing (legacy configureQueueStream)."""


class ClientType(IntEnum):
    E_UNKNOWN = 0
    E_TCPCLIENT = 1
    E_TCPBROKER = 2
    E_TCPADMIN = 3


class ClientLanguage(IntEnum):
    E_UNKNOWN = 0
    E_CPP = 1
    E_JAVA = 2

    @classmethod
    def _missing_(cls, value: object) -> "ClientLanguage":
        """A language that comes later needs nothing of its own until somebody finds that it does."""
        return cls.E_UNKNOWN


class StatusCategory(IntEnum):
    E_SUCCESS = 0
    E_UNKNOWN = -1
    E_TIMEOUT = -2
    E_NOT_CONNECTED = -3
    E_CANCELED = -4
    E_NOT_SUPPORTED = -5
    E_REFUSED = -6
    E_INVALID_ARGUMENT = -7
    E_NOT_READY = -8


class ExpressionVersion(IntEnum):
    E_UNDEFINED = 0
    """No filter."""
    E_VERSION_1 = 1


# -- negotiation ------------------------------------------------------------------------------------------------------


@sequence
class GuidInfo:
    client_id: str = element(0, STRING, default="")
    """12 hex digits, which end each GUID of the client; "" when the broker must make the GUIDs."""
    nano_seconds_from_epoch: int = element(1, LONG, default=0)


@sequence
class ClientIdentity:
    protocol_version: int = mandatory(0, INT)
    sdk_version: int = element(1, INT, default=999_999)
    client_type: ClientType = mandatory(2, ClientType)
    process_name: str = element(3, STRING, default="")
    pid: int = element(4, INT, default=0)
    session_id: int = element(5, INT, default=1)
    host_name: str = element(6, STRING, default="")
    features: str = element(7, STRING, default="")
    cluster_name: str = element(8, STRING, default="")
    cluster_node_id: int = element(9, INT, default=-1)
    sdk_language: ClientLanguage = element(10, ClientLanguage, default=ClientLanguage.E_CPP)
    guid_info: GuidInfo | None = element(11, GuidInfo, optional=True, default=None)
    """Java's SDK has none."""
    user_agent: str | None = element(12, STRING, optional=True, default=None)
    """Only newer SDKs have it."""


@sequence
class RequestStatus:
    category: StatusCategory = mandatory(0, StatusCategory)
    code: int = mandatory(1, INT)
    message: str = element(2, STRING, default="")


@sequence
class BrokerResponse:
    result: RequestStatus = mandatory(0, RequestStatus)
    protocol_version: int = mandatory(1, INT)
    broker_version: int = mandatory(2, INT)
    is_deprecated_sdk: bool = element(3, BOOL, default=False)
    broker_identity: ClientIdentity = mandatory(4, ClientIdentity)
    heartbeat_interval_ms: int = element(5, INT, default=3_000)
    max_missed_heartbeats: int = element(6, INT, default=10)


@sequence
class PlaceHolder:
    pass


NegotiationMessage = ClientIdentity | BrokerResponse | PlaceHolder
NEGOTIATION = choice(
    {0: ("clientIdentity", ClientIdentity), 1: ("brokerResponse", BrokerResponse), 2: ("placeHolder", PlaceHolder)}
)


# -- authentication ---------------------------------------------------------------------------------------------------


@sequence
class AuthenticationRequest:
    mechanism: str = mandatory(0, STRING)
    data: bytes | None = element(1, BYTES, optional=True, default=None)


@sequence
class AuthenticationResponse:
    status: RequestStatus = mandatory(0, RequestStatus)
    lifetime_ms: int | None = element(1, ULONG, optional=True, default=None)


AuthenticationMessage = AuthenticationRequest | AuthenticationResponse
AUTHENTICATION = choice(
    {0: ("authenticationRequest", AuthenticationRequest), 1: ("authenticationResponse", AuthenticationResponse)}
)


# -- requests and responses -------------------------------------------------------------------------------------------


@sequence
class Disconnect:
    pass


@sequence
class DisconnectResponse:
    pass


@sequence
class AdminCommand:
    command: str = mandatory(0, STRING)


@sequence
class AdminCommandResponse:
    text: str = mandatory(0, STRING)


@sequence
class SubQueueIdInfo:
    sub_id: int = element(0, UINT, default=0)
    app_id: str = element(1, STRING, default=DEFAULT_APP_ID)


@sequence
class QueueHandleParameters:
    uri: str = mandatory(0, STRING)
    q_id: int = mandatory(1, UINT)
    sub_id_info: SubQueueIdInfo | None = element(2, SubQueueIdInfo, optional=True, default=None)
    flags: int = mandatory(3, ULONG)
    """How it is opened, added up: 1 as administrator, 2 to read, 4 to write, 8 with ACKs."""
    read_count: int = element(4, INT, default=0)
    write_count: int = element(5, INT, default=0)
    admin_count: int = element(6, INT, default=0)


@sequence
class OpenQueue:
    handle_parameters: QueueHandleParameters = mandatory(0, QueueHandleParameters)


@sequence
class RoutingConfiguration:
    flags: int = mandatory(0, ULONG)
    """Added up: 1 at most once, 2 by the consumers' priority, 4 to all, 8 with several substreams."""


@sequence
class OpenQueueResponse:
    original_request: OpenQueue = mandatory(0, OpenQueue)
    routing_configuration: RoutingConfiguration = mandatory(1, RoutingConfiguration)
    deduplication_time_ms: int = element(2, INT, default=300_000)


@sequence
class CloseQueue:
    handle_parameters: QueueHandleParameters = mandatory(0, QueueHandleParameters)
    is_final: bool = element(1, BOOL, default=False)


@sequence
class CloseQueueResponse:
    pass


@sequence
class QueueStreamParameters:
    sub_id_info: SubQueueIdInfo | None = element(0, SubQueueIdInfo, optional=True, default=None)
    max_unconfirmed_messages: int = element(1, LONG, default=0)
    max_unconfirmed_bytes: int = element(2, LONG, default=0)
    consumer_priority: int = element(3, INT, default=PRIORITY_MIN)
    consumer_priority_count: int = element(4, INT, default=0)


@sequence
class ConfigureQueueStream:
    q_id: int = mandatory(0, UINT)
    stream_parameters: QueueStreamParameters = mandatory(1, QueueStreamParameters)


@sequence
class ConfigureQueueStreamResponse:
    request: ConfigureQueueStream = mandatory(0, ConfigureQueueStream)


@sequence
class Expression:
    version: ExpressionVersion = element(0, ExpressionVersion, default=ExpressionVersion.E_UNDEFINED)
    text: str = mandatory(1, STRING)


@sequence
class ConsumerInfo:
    max_unconfirmed_messages: int = element(0, LONG, default=0)
    max_unconfirmed_bytes: int = element(1, LONG, default=0)
    consumer_priority: int = element(2, INT, default=PRIORITY_MIN)
    consumer_priority_count: int = element(3, INT, default=0)


@sequence
class StreamSubscription:
    s_id: int = mandatory(0, UINT)
    expression: Expression = mandatory(1, Expression)
    consumers: tuple[ConsumerInfo, ...] = element(2, ConsumerInfo, array=True, default=())


@sequence
class StreamParameters:
    app_id: str = element(0, STRING, default=DEFAULT_APP_ID)
    subscriptions: tuple[StreamSubscription, ...] = element(1, StreamSubscription, array=True, default=())
    """None: the consumer receives nothing any more, and keeps what it has."""


@sequence
class ConfigureStream:
    q_id: int = mandatory(0, UINT)
    stream_parameters: StreamParameters = mandatory(1, StreamParameters)


@sequence
class ConfigureStreamResponse:
    request: ConfigureStream = mandatory(0, ConfigureStream)


ControlChoice = (
    RequestStatus
    | Disconnect
    | DisconnectResponse
    | AdminCommand
    | AdminCommandResponse
    | OpenQueue
    | OpenQueueResponse
    | CloseQueue
    | CloseQueueResponse
    | ConfigureQueueStream
    | ConfigureQueueStreamResponse
    | ConfigureStream
    | ConfigureStreamResponse
)
CONTROL = choice(
    {
        0: ("status", RequestStatus),
        1: ("disconnect", Disconnect),
        2: ("disconnectResponse", DisconnectResponse),
        7: ("adminCommand", AdminCommand),
        8: ("adminCommandResponse", AdminCommandResponse),
        10: ("openQueue", OpenQueue),
        11: ("openQueueResponse", OpenQueueResponse),
        12: ("closeQueue", CloseQueue),
        13: ("closeQueueResponse", CloseQueueResponse),
        14: ("configureQueueStream", ConfigureQueueStream),
        15: ("configureQueueStreamResponse", ConfigureQueueStreamResponse),
        16: ("configureStream", ConfigureStream),
        17: ("configureStreamResponse", ConfigureStreamResponse),
    }
)


@dataclass(frozen=True, slots=True)
class Unserved:
    """A request that is no `ControlChoice`: of a kind unknown here, or with a value that cannot be. It can be answered
    by a `RequestStatus`."""

    category: StatusCategory
    """E_NOT_SUPPORTED or E_INVALID_ARGUMENT."""
    reason: str


@dataclass(frozen=True, slots=True)
class ControlMessage:
    """Every control event but the first of each direction."""

    r_id: int | None
    """Of the request; a response repeats it."""
    choice: ControlChoice | Unserved
