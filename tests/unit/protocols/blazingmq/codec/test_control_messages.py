"""Control messages in both codecs: round trips, other encoders' liberties, lies, bombs."""

import base64
import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.errors import RemoteProtocolError
from vibemq.protocols.blazingmq.codec import ber, json_codec, messages, schema
from vibemq.protocols.blazingmq.codec.control import (
    decode_authentication,
    decode_control,
    decode_negotiation,
    encode_authentication,
    encode_control,
    encode_negotiation,
)
from vibemq.protocols.blazingmq.codec.events import ControlCodec, Event, EventReader, control_event
from vibemq.protocols.blazingmq.codec.messages import (
    AUTHENTICATION,
    CONTROL,
    NEGOTIATION,
    AuthenticationRequest,
    ClientIdentity,
    ClientLanguage,
    ClientType,
    CloseQueueResponse,
    ConfigureStream,
    ControlMessage,
    OpenQueue,
    QueueHandleParameters,
    RequestStatus,
    StatusCategory,
    Unserved,
)
from vibemq.protocols.blazingmq.codec.schema import DEPTH_MAX, VALUES_MAX, Choice, Element, Scalar

BER, JSON = ControlCodec.BER, ControlCodec.JSON
HEAD = bytes.fromhex("3080 800101 a180")
TAIL = bytes.fromhex("0000 0000")
MANY_LEVELS = 60_000
"""Far more than the interpreter's own stack has."""


def scalars(of: Scalar) -> st.SearchStrategy[Any]:
    if of is Scalar.STRING:
        return st.text(max_size=300)
    if of is Scalar.BYTES:
        return st.binary(max_size=20)
    if of is Scalar.BOOL:
        return st.booleans()
    low, high = of.value
    return st.integers(low, high) | st.sampled_from([low, high])


def values(part: Element) -> st.SearchStrategy[Any]:
    if part.is_array:
        return st.lists(sequences(part.type), max_size=3).map(tuple)
    if schema.is_sequence(part.type):
        made = sequences(part.type)
    elif schema.is_enumeration(part.type):
        made = st.sampled_from(part.type)
    else:
        made = scalars(part.type)
    return made | st.none() if part.is_optional else made


def sequences(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Whatever the schema allows: the tests are driven by the same table as the codecs."""
    return st.builds(cls, **{part.attribute: values(part) for part in schema.elements_of(cls)})


def any_of(choice: Choice) -> st.SearchStrategy[Any]:
    return st.one_of([sequences(cls) for cls in choice.of_class])


def cut(data: bytes) -> Event:
    reader = EventReader(event_bytes_max=1 << 24, control_bytes_max=1 << 24)
    reader.receive_data(data)
    [event] = reader.read()
    return event


def control(codec: ControlCodec, body: bytes) -> ControlMessage:
    return decode_control(cut(control_event(codec, body)))


def by_ber(body: str) -> ControlMessage:
    return control(BER, bytes.fromhex(body))


def by_json(message: object) -> ControlMessage:
    return control(JSON, json.dumps(message).encode())


@given(any_of(CONTROL), st.none() | st.integers(-(1 << 31), (1 << 31) - 1), st.sampled_from(ControlCodec))
def test_control_messages_survive(message: Any, r_id: int | None, codec: ControlCodec) -> None:
    assert decode_control(cut(encode_control(codec, r_id, message))) == ControlMessage(r_id, message)


@given(any_of(NEGOTIATION), st.sampled_from(ControlCodec))
def test_negotiations_survive(message: Any, codec: ControlCodec) -> None:
    assert decode_negotiation(cut(encode_negotiation(codec, message))) == message


@given(any_of(AUTHENTICATION), st.sampled_from(ControlCodec))
def test_authentications_survive(message: Any, codec: ControlCodec) -> None:
    assert decode_authentication(cut(encode_authentication(codec, message))) == message


def test_every_class_of_the_schema_has_its_numbers_in_order() -> None:
    classes = [cls for cls in vars(messages).values() if isinstance(cls, type) and schema.is_sequence(cls)]
    assert len(classes) > 25
    for cls in classes:
        numbers = [part.number for part in schema.elements_of(cls)]
        assert numbers == list(range(len(numbers)))


# -- BER of other writers ---------------------------------------------------------------------------------------------


def tlv(tag: str, *contents: bytes) -> bytes:
    content = b"".join(contents)
    return bytes.fromhex(tag) + bytes((len(content),)) + content


def definite_open_queue(q_id: bytes) -> bytes:
    counts = bytes.fromhex("840100 85 83000001 01 860100")
    parameters = tlv("a0", tlv("80", b"q"), tlv("81", q_id), tlv("83", b"\4"), counts)
    return tlv("30", tlv("a1", tlv("aa", parameters)), tlv("80", b"\2"))


def test_definite_lengths_are_read() -> None:
    parameters = QueueHandleParameters(uri="q", q_id=7, flags=4, write_count=1)
    assert control(BER, definite_open_queue(b"\7")) == ControlMessage(2, OpenQueue(handle_parameters=parameters))


def test_a_bad_value_among_definite_lengths_can_be_answered() -> None:
    found = control(BER, definite_open_queue(b"\xff"))
    assert (found.r_id, type(found.choice)) == (2, Unserved)


def test_unknown_fields_are_passed_over() -> None:
    unknown = "9f 8148 02 ffff" + "bf 49 80 30 80 04 01 00 0000 bf 4a 03 ffffff 0000" + "04 00"
    assert by_ber(f"3080 800101 {unknown} a180 {unknown} ad80 {unknown} 0000 0000 0000").choice == CloseQueueResponse()


def test_fields_in_another_order() -> None:
    assert by_ber("3080 a180 ad80 0000 0000 800105 0000") == ControlMessage(5, CloseQueueResponse())


def test_any_number_but_zero_is_true() -> None:
    body = "3080 800101 a180 ac80 8101ff a080 800171 810100 830102 0000 0000 0000 0000"
    assert by_ber(body).choice.is_final is True


def test_missing_fields_have_their_defaults() -> None:
    body = "3080 800101 a180 b080 800107 a180 0000 0000 0000 0000"
    message = by_ber(body).choice
    assert isinstance(message, ConfigureStream)
    assert (message.stream_parameters.app_id, message.stream_parameters.subscriptions) == ("__default", ())


def test_a_length_hint_in_an_array_is_passed_over() -> None:
    hinted = "a180 9f87ffffff7f 0101 3080 800109 a180 810178 0000 0000 0000"
    message = by_ber(f"3080 800101 a180 b080 800107 a180 {hinted} 0000 0000 0000 0000").choice
    assert isinstance(message, ConfigureStream)
    [subscription] = message.stream_parameters.subscriptions
    assert (subscription.s_id, subscription.expression.text) == (9, "x")


def test_integers_of_nine_bytes() -> None:
    body = "3080 800101 a180 aa80 a080 800171 810100 830900ffffffffffffffff 0000 0000 0000 0000"
    message = by_ber(body).choice
    assert isinstance(message, OpenQueue)
    assert message.handle_parameters.flags == (1 << 64) - 1


@pytest.mark.parametrize(
    ("number", "written"),
    [(0, "00"), (127, "7f"), (128, "0080"), (-1, "ff"), (-128, "80"), (-129, "ff7f"), (300_000, "0493e0")],
)
def test_numbers_take_as_few_bytes_as_they_need(number: int, written: str) -> None:
    encoded = ber.encode_request(CONTROL, 1, RequestStatus(category=StatusCategory.E_SUCCESS, code=number))
    content = bytes.fromhex(written)
    assert b"\x81" + bytes((len(content),)) + content in encoded


def test_long_strings_have_long_lengths() -> None:
    encoded = ber.encode_request(CONTROL, 1, messages.AdminCommand(command="x" * 200))
    assert b"\x80\x81\xc8" + b"x" * 200 in encoded


# -- what can be answered ---------------------------------------------------------------------------------------------


def open_queue(**fields: object) -> dict[str, object]:
    return {"rId": 4, "openQueue": {"handleParameters": {"uri": "q", "qId": 0, "flags": 2, **fields}}}


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (open_queue(qId=-1), "qId is -1"),
        (open_queue(qId=1 << 32), "qId is 4294967296"),
        (open_queue(flags=1 << 64), "flags is no whole number"),
        (open_queue(flags=True), "flags is no whole number"),
        (open_queue(flags=2.5), "flags is no whole number"),
        (open_queue(flags="2"), "flags is no whole number"),
        (open_queue(uri=7), "uri is no string"),
        (open_queue(readCount=1 << 31), "readCount is 2147483648"),
        (open_queue(subIdInfo=[]), "subIdInfo is no object"),
        ({"rId": 4, "openQueue": {}}, "OpenQueue has no handleParameters"),
        ({"rId": 4, "openQueue": {"handleParameters": {"uri": "q", "qId": 0}}}, "has no flags"),
        ({"rId": 4, "openQueue": None}, "openQueue is no object"),
        ({"rId": 4, "openQueue": {}, "disconnect": {}}, "openQueue and disconnect"),
        ({"rId": 4, "status": {"category": "E_WHAT", "code": 0}}, "category is 'E_WHAT'"),
        ({"rId": 4, "status": {"category": 7, "code": 0}}, "category is 7"),
        ({"rId": 4, "configureStream": {"qId": 0, "streamParameters": {"subscriptions": {}}}}, "is no array"),
        ({"rId": 4, "configureStream": {"qId": 0, "streamParameters": {"subscriptions": [1]}}}, "is no object"),
    ],
)
def test_a_request_with_a_bad_value_can_be_answered(message: dict[str, object], why: str) -> None:
    found = by_json(message)
    assert found.r_id == 4
    assert isinstance(found.choice, Unserved)
    assert found.choice.category == StatusCategory.E_INVALID_ARGUMENT
    assert why in found.choice.reason


@pytest.mark.parametrize(
    ("selection", "why"),
    [
        ("aa80 a080 800171 8102ffff 830102 0000 0000", "qId is -1"),
        ("aa80 a080 800171 81050100000000 830102 0000 0000", "qId is 4294967296"),
        ("aa80 a080 8001ff 810100 830102 0000 0000", "uri is not UTF-8"),
        ("aa80 a080 a0800000 810100 830102 0000 0000", "uri is a group"),
        ("aa80 800101 0000", "handleParameters is a single value"),
        ("aa80 a080 800171 800171 0000 0000", "uri is there twice"),
        ("aa80 0000", "no handleParameters"),
        ("ac80 8102ffff 0000", "boolean of 2 bytes"),
        ("ad80 0000 ad80 0000", "another selection"),
        ("a080 80017f 810100 0000", "category is 127"),
    ],
)
def test_the_same_in_ber(selection: str, why: str) -> None:
    found = by_ber(f"3080 800104 a180 {selection} 0000 0000")
    assert found.r_id == 4
    assert isinstance(found.choice, Unserved)
    assert found.choice.category == StatusCategory.E_INVALID_ARGUMENT
    assert why in found.choice.reason


def test_the_id_may_come_behind_a_bad_value() -> None:
    found = by_ber("3080 a180 aa80 a080 810100 bf4a80 0000 0000 0000 0000 800109 0000")
    assert (found.r_id, type(found.choice)) == (9, Unserved)


def test_an_unknown_request_is_not_supported() -> None:
    for found in (by_ber("3080 800104 a180 a980 800101 0000 0000 0000"), by_json({"rId": 4, "clusterMessage": {}})):
        assert found.r_id == 4
        assert isinstance(found.choice, Unserved)
        assert found.choice.category == StatusCategory.E_NOT_SUPPORTED


def test_a_language_that_is_unknown_is_no_error() -> None:
    identity = ClientIdentity(protocol_version=1, client_type=ClientType.E_TCPCLIENT)
    text = json_codec.encode_choice(NEGOTIATION, identity).replace(b"E_CPP", b"E_RUST")
    by_name = decode_negotiation(cut(control_event(JSON, text)))
    data = ber.encode_choice(NEGOTIATION, identity).replace(b"\x8a\x01\x01", b"\x8a\x01\x09")
    by_number = decode_negotiation(cut(control_event(BER, data)))
    for found in (by_name, by_number):
        assert isinstance(found, ClientIdentity)
        assert found.sdk_language is ClientLanguage.E_UNKNOWN


# -- lies and bombs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "",
        "3080",
        "3180 0000",
        "3003 800101 00",
        "3080 800101 a180 ad80 0000 0000",
        "3080 800101 a180 ad80 0000 0000 0000 00",
        "3080 80 80 01 0000 0000",
        "3080 80 00 0000",
        "3080 80 0a 01020304050607080900 0000",
        "3080 80 7f 01 0000",
        "3080 80 84 ffffffff 01 0000",
        "3080 80 88 ffffffffffffffff 01 0000",
        "3080 80 89 000000000000000001 01 0000",
        "3080 9fffffffffffff7f 00 0000",
        "3080 a105 ad80 800101 0000 0000",
        "3080 80 05 0100000000 0000",
    ],
)
def test_ber_that_cannot_be_read(body: str) -> None:
    with pytest.raises(RemoteProtocolError):
        by_ber(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"1",
        b"{",
        b'{"rId":1,}',
        b'{"rId":"1"}',
        b'{"rId":4294967296}',
        b"\xff{}",
        b'{"disconnect":{"x":"\xff"}}',
    ],
)
def test_json_that_cannot_be_read(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        control(JSON, body)


def test_a_value_that_is_longer_than_the_one_around_it() -> None:
    with pytest.raises(RemoteProtocolError, match="4 bytes, where 0 are left"):
        by_ber("300a a102 aa04 a002 8000 8000")


def test_codecs_that_are_unknown() -> None:
    event = cut(control_event(BER, b"x"))._replace(codec=2)
    with pytest.raises(RemoteProtocolError, match="codec 2"):
        decode_control(event)


def test_negotiations_that_are_none() -> None:
    for codec, body in (
        (BER, bytes.fromhex("3080 0000")),
        (BER, bytes.fromhex("3080 a080 a980 0000 0000 0000")),
        (JSON, b"{}"),
    ):
        with pytest.raises(RemoteProtocolError):
            decode_negotiation(cut(control_event(codec, body)))
        with pytest.raises(RemoteProtocolError):
            decode_authentication(cut(control_event(codec, body)))


def nested_ber(levels: int) -> bytes:
    return HEAD + b"\xbf\x50\x80" * levels + b"\0\0" * levels + bytes.fromhex("ad80 0000") + TAIL


def nested_json(levels: int) -> bytes:
    return b'{"rId":1,"x":' + b"[" * levels + b"]" * levels + b',"closeQueueResponse":{}}'


@pytest.mark.parametrize(("codec", "nested"), [(BER, nested_ber), (JSON, nested_json)])
def test_depth_is_bounded(codec: ControlCodec, nested: Callable[[int], bytes]) -> None:
    # The message around it has a level or two of its own.
    assert control(codec, nested(DEPTH_MAX - 2)).choice == CloseQueueResponse()
    for levels in (DEPTH_MAX, 200, MANY_LEVELS):
        with pytest.raises(RemoteProtocolError):
            control(codec, nested(levels))


def test_json_of_very_many_lists_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    event = cut(control_event(JSON, b'{"rId":1,"x":[' + b"[]," * VALUES_MAX + b'1],"closeQueueResponse":{}}'))
    monkeypatch.setattr(orjson, "loads", lambda text: pytest.fail("it was read"))
    with pytest.raises(RemoteProtocolError, match="more than 4,096 JSON lists"):
        decode_control(event)


def wide_ber(count: int) -> bytes:
    return HEAD + bytes.fromhex("b080 800100 a180 a180") + b"\x30\0" * count + b"\0\0" * 3 + TAIL


def wide_json(count: int) -> bytes:
    items = ",".join(["{}"] * count)
    return b'{"rId":1,"configureStream":{"qId":0,"streamParameters":{"subscriptions":[' + items.encode() + b"]}}}"


@pytest.mark.parametrize(("codec", "wide"), [(BER, wide_ber), (JSON, wide_json)])
def test_the_number_of_values_is_bounded(codec: ControlCodec, wide: Callable[[int], bytes]) -> None:
    assert isinstance(control(codec, wide(1)).choice, Unserved)
    with pytest.raises(RemoteProtocolError, match=r"more than 4,?096"):
        control(codec, wide(VALUES_MAX))


def test_bytes_are_base64_in_json() -> None:
    message = AuthenticationRequest(mechanism="Basic", data=b"\0\xff")
    text = json_codec.encode_choice(AUTHENTICATION, message)
    assert json.loads(text)["authenticationRequest"]["data"] == base64.b64encode(b"\0\xff").decode()
    with pytest.raises(RemoteProtocolError, match="base64"):
        json_codec.decode_choice(AUTHENTICATION, text.replace(b"AP8=", b"AP8!"))


def test_null_is_as_good_as_absent() -> None:
    assert by_json(
        {"rId": 1, "x": None, "openQueue": {"handleParameters": {"uri": "q", "qId": 0, "flags": 2, "subIdInfo": None}}}
    ) == ControlMessage(1, OpenQueue(handle_parameters=QueueHandleParameters(uri="q", q_id=0, flags=2)))


@given(any_of(CONTROL), st.data(), st.sampled_from(ControlCodec))
def test_damaged_messages_raise_only_the_documented_error(
    message: Any, data: st.DataObject, codec: ControlCodec
) -> None:
    event = cut(encode_control(codec, 1, message))
    body = bytearray(event.body)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    try:
        found = decode_control(Event(event.type, event.codec, bytes(body), 0, len(body)))
    except RemoteProtocolError:
        return
    if not isinstance(found.choice, Unserved):
        assert decode_control(cut(encode_control(codec, found.r_id, found.choice))) == found
