"""A broker that only acknowledges, for the ceiling of a client: no queues, no store, nothing is looked at but GUIDs.

python -m bench.blazingmq_sink PORT
"""

import asyncio
import sys

from vibemq.protocols.blazingmq.codec.acks import build_acks
from vibemq.protocols.blazingmq.codec.control import (
    decode_control,
    decode_negotiation,
    encode_control,
    encode_negotiation,
)
from vibemq.protocols.blazingmq.codec.events import ControlCodec, EventReader, EventType
from vibemq.protocols.blazingmq.codec.features import BROKER_FEATURES
from vibemq.protocols.blazingmq.codec.messages import (
    BrokerResponse,
    ClientIdentity,
    ClientLanguage,
    ClientType,
    CloseQueue,
    CloseQueueResponse,
    ConfigureStream,
    ConfigureStreamResponse,
    ControlChoice,
    Disconnect,
    DisconnectResponse,
    GuidInfo,
    OpenQueue,
    OpenQueueResponse,
    RequestStatus,
    RoutingConfiguration,
    StatusCategory,
)

IDENTITY = ClientIdentity(
    protocol_version=1,
    client_type=ClientType.E_TCPBROKER,
    features=BROKER_FEATURES,
    sdk_language=ClientLanguage.E_CPP,
    guid_info=GuidInfo(),
)
WELCOME = BrokerResponse(
    result=RequestStatus(category=StatusCategory.E_SUCCESS, code=0),
    protocol_version=1,
    broker_version=999_999,
    broker_identity=IDENTITY,
    max_missed_heartbeats=0,
)


class Sink(asyncio.Protocol):
    def __init__(self) -> None:
        self._reader = EventReader(event_bytes_max=1 << 30, control_bytes_max=1 << 20)
        self._welcome = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._reader.receive_data(data)
        acks = []
        for event in self._reader.read():
            if event.type == EventType.PUT:
                # One message to an event, as the SDK sends them.
                guid = event.data[event.start + 12 : event.start + 28]
                acks.append((0, 0, guid, int.from_bytes(event.data[event.start + 8 : event.start + 12], "big")))
            elif event.type == EventType.CONTROL:
                if not self._welcome:
                    decode_negotiation(event)
                    self._welcome = True
                    self._transport.write(encode_negotiation(ControlCodec.BER, WELCOME))
                    continue
                message = decode_control(event)
                self._transport.write(encode_control(ControlCodec.BER, message.r_id, _answer(message.choice)))
        if acks:
            self._transport.write(build_acks(acks))


def _answer(request: object) -> ControlChoice:
    match request:
        case OpenQueue():
            return OpenQueueResponse(original_request=request, routing_configuration=RoutingConfiguration(flags=2))
        case ConfigureStream():
            return ConfigureStreamResponse(request=request)
        case CloseQueue():
            return CloseQueueResponse()
        case Disconnect():
            return DisconnectResponse()
    return RequestStatus(category=StatusCategory.E_NOT_SUPPORTED, code=-5)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
