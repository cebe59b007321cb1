"""Messages of both forms become rows, and rows become messages of both forms; nothing is lost."""

import base64
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vibemq.errors import InvalidMessage, InvalidQueueName
from vibemq.model.rows import RowView, pack_row
from vibemq.protocols.eventmesh.messages import forms, names
from vibemq.protocols.eventmesh.messages.attributes import CORE
from vibemq.protocols.eventmesh.messages.cloudevent import read_event
from vibemq.protocols.eventmesh.messages.message import read_message
from vibemq.protocols.eventmesh.messages.names import Form

FILE = Path(__file__).parents[4].joinpath("vectors/eventmesh.json")
VECTORS = json.loads(FILE.read_text(encoding="utf-8"))["vectors"]


def topic_in(body: str) -> Any:
    fields = json.loads(body)
    return fields.get("topic") or fields.get("subject")


CARRIERS = [
    pytest.param(vector, id=vector["name"])
    for vector in VECTORS
    if "_TO_" in vector["header"] and (vector["body"] or "").startswith("{") and topic_in(vector["body"])
]
EVENT = {"specversion": "1.0", "id": "e1", "source": "/s", "type": "t", "subject": "orders"}


def form_in(vector: dict[str, Any]) -> Form:
    return forms.form_named((json.loads(vector["header"]).get("properties") or {}).get("protocoltype", ""))


def row_of(form: Form, raw: str | bytes) -> RowView:
    return RowView(forms.read(form, raw).row("fresh"))


def written(form: Form, view: RowView, **more: str) -> Any:
    return json.loads(forms.write(form, "orders", view.message_id, view.payload, view.headers, more))


def data_of(event: dict[str, Any]) -> Any:
    """An event with its data as bytes, whatever it was written as."""
    event = dict(event)
    encoded, inline = event.pop("data_base64", None), event.pop("data", None)
    if encoded is not None:
        event["data"] = json.loads(base64.b64decode(encoded))
    elif inline is not None:
        event["data"] = inline
    return event


@pytest.mark.parametrize("vector", CARRIERS)
def test_what_clients_send_comes_back_as_it_was(vector: dict[str, Any]) -> None:
    form, sent = form_in(vector), json.loads(vector["body"])
    view = row_of(form, vector["body"])
    topic = sent["topic"] if form is Form.MESSAGE else sent["subject"]
    raw = forms.write(form, topic, view.message_id, view.payload, view.headers)
    if form is Form.MESSAGE:
        assert json.loads(raw) == {"headers": {}, **sent}
    else:
        assert data_of(json.loads(raw)) == data_of(sent)
        assert "data" not in json.loads(raw)


@pytest.mark.parametrize("vector", CARRIERS)
def test_a_form_there_and_back(vector: dict[str, Any]) -> None:
    form = form_in(vector)
    other = Form.CLOUDEVENT if form is Form.MESSAGE else Form.MESSAGE
    message = forms.read(form, vector["body"])
    view = RowView(message.row("fresh"))
    there = forms.write(other, message.topic, view.message_id, view.payload, view.headers)
    back = RowView(forms.read(other, there).row("fresh"))
    assert back.payload == view.payload
    again = forms.write(form, message.topic, back.message_id, back.payload, back.headers)
    first = forms.write(form, message.topic, view.message_id, view.payload, view.headers)
    wanted, found = json.loads(first), json.loads(again)
    if form is Form.MESSAGE:
        # What has no content type gets one as an event.
        found["headers"].pop("datacontenttype", None)
        wanted["headers"].pop("datacontenttype", None)
    assert found == wanted


def test_the_headers_that_a_message_becomes() -> None:
    raw = {
        "topic": "orders",
        "properties": {"ttl": "4000", "keys": "k", "TTL2": 5, "": "x", "empty": "", "reply-to": "mine"},
        "headers": {"datacontenttype": "text/plain", "other": "o"},
        "body": "é",
    }
    message = read_message(json.dumps(raw))
    view = RowView(message.row("fresh"))
    assert (message.topic, message.ttl_ms, view.message_id, view.payload) == ("orders", 4_000, "fresh", "é".encode())
    headers = view.headers
    assert json.loads(headers.pop(names.EXACT)) == {"TTL2": 5, "": "x", "empty": "", "reply-to": "mine"}
    assert headers == {
        "eventmesh-protocol": "eventmeshmessage",
        "ttl": "4000",
        "keys": "k",
        "TTL2": "5",
        "content-type": "text/plain",
        "eventmesh-headers": '{"other":"o"}',
    }
    assert written(Form.MESSAGE, view) == raw


def test_the_headers_that_an_event_becomes() -> None:
    raw = '{"specversion":"1.0","id":"e1","source":"/s","type":"t","subject":"orders","datacontenttype":'
    raw += '"application/json","ttl":"9","n":5,"b":true,"nothing":null,"data": {"x":  1.50, "data": "}"} }'
    message = read_event(raw)
    view = RowView(message.row("fresh"))
    assert (view.message_id, message.ttl_ms) == ("e1", 9)
    assert view.payload == b'{"x":  1.50, "data": "}"}', "inline JSON keeps its bytes"
    assert view.headers == {
        "eventmesh-protocol": "cloudevents",
        "ce-specversion": "1.0",
        "ce-id": "e1",
        "ce-source": "/s",
        "ce-type": "t",
        "ce-subject": "orders",
        "ce-ttl": "9",
        "ce-n": "5",
        "ce-b": "true",
        "content-type": "application/json",
    }
    assert forms.write(Form.CLOUDEVENT, "orders", "e1", view.payload, view.headers).endswith(
        b',"data":{"x":  1.50, "data": "}"}}'
    )


@pytest.mark.parametrize(
    ("content_type", "data", "payload", "comes_as"),
    [
        ("text/plain", {"data": "text"}, b"text", {"data": "text"}),
        ("text/plain; charset=utf-8", {"data": "text"}, b"text", {"data": "text"}),
        ("application/json", {"data": "text"}, b'"text"', {"data": "text"}),
        ("application/cloudevents+json", {"data": [1]}, b"[1]", {"data_base64": "WzFd"}),
        ("application/octet-stream", {"data_base64": "/w=="}, b"\xff", {"data_base64": "/w=="}),
        (None, {"data": {"a": 1}}, b'{"a": 1}', {"data_base64": "eyJhIjogMX0="}),
        ("application/json", {"data_base64": "e30="}, b"{}", {"data": {}}),
        ("application/json", {"data_base64": "ew=="}, b"{", {"data_base64": "ew=="}),
        ("text/plain", {}, b"", {}),
        ("text/plain", {"data_base64": "/w=="}, b"\xff", {"data_base64": "/w=="}),
    ],
)
def test_data_of_every_content_type(
    content_type: str | None, data: dict[str, Any], payload: bytes, comes_as: dict[str, Any]
) -> None:
    event = EVENT | ({"datacontenttype": content_type} if content_type else {})
    view = row_of(Form.CLOUDEVENT, json.dumps(event | data))
    assert view.payload == payload
    assert written(Form.CLOUDEVENT, view) == event | comes_as


def test_events_of_0_3_keep_their_way_of_encoding() -> None:
    event = EVENT | {"specversion": "0.3", "datacontentencoding": "base64", "data": "e30=", "datacontenttype": "a/b"}
    view = row_of(Form.CLOUDEVENT, json.dumps(event))
    assert view.payload == b"{}"
    assert written(Form.CLOUDEVENT, view) == event


@pytest.mark.parametrize(
    "raw",
    [
        "{",
        "[]",
        "{}",
        '{"topic":""}',
        '{"topic":5}',
        '{"topic":"a","properties":[]}',
        '{"topic":"a","headers":"x"}',
        '{"topic":"a","properties":{"ttl":"soon"}}',
        '{"topic":"a","properties":{"ttl":-1}}',
        "\udcff",
        "null",
        '{"topic":"a","body":"x","properties":{"eventmesh-encoding":"base64"}}',
        '{"topic":"a","body":"é","properties":{"eventmesh-encoding":"base64"}}',
    ],
)
def test_what_is_no_message_is_refused(raw: str) -> None:
    with pytest.raises(InvalidMessage):
        read_message(raw.encode(errors="surrogateescape"))


def test_lists_and_objects_in_properties_and_headers_come_as_their_json() -> None:
    """A Java client reads texts there, and ends its connection at anything that it cannot take for one."""
    raw = {"topic": "orders", "properties": {"a": {"b": [1]}, "n": 5}, "headers": {"c": [True], "d": None}, "body": ""}
    properties, headers = {"a": '{"b":[1]}', "n": 5}, {"c": "[true]", "d": None}
    view = row_of(Form.MESSAGE, json.dumps(raw))
    assert written(Form.MESSAGE, view) == raw | {"properties": properties, "headers": headers}


@pytest.mark.parametrize(
    "change",
    [
        {"id": None},
        {"id": ""},
        {"source": 5},
        {"type": None},
        {"specversion": "2.0"},
        {"subject": None},
        {"subject": ""},
        {"datacontenttype": 5},
        {"data_base64": "&"},
        {"data_base64": 5},
        {"data_base64": "é"},
        {"x": {}},
        {"ttl": "x"},
        {"My_Key": "x"},
        {"MyKey": 5},
        {"": "x"},
        {"time": 5},
        {"time": ""},
        {"time": "yesterday"},
        {"source": "my app"},
        {"dataschema": "a b"},
    ],
)
def test_what_is_no_event_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage):
        read_event(json.dumps(EVENT | change))


def test_limits_of_a_message() -> None:
    limits = {"headers_max": 5, "header_value_units_max": 10}
    for properties in ({str(n): "x" for n in range(5)}, {"a": "x" * 11}):
        with pytest.raises(InvalidMessage, match="at most"):
            read_message(json.dumps({"topic": "a", "properties": properties})).check(**limits)
    with pytest.raises(InvalidQueueName):
        read_message('{"topic":"a b"}').check(**limits)
    with pytest.raises(InvalidMessage):
        read_message(json.dumps({"topic": "a", "properties": {"k": "x" * 70_000}})).row("fresh")


@pytest.mark.parametrize(
    ("properties", "fit"), [({"a": "😀" * 10}, True), ({"a": "😀" * 11}, False), ({"x" * 21: "a"}, False)]
)
def test_properties_are_as_long_as_native_clients_count_them(properties: dict[str, str], fit: bool) -> None:
    message = read_message(json.dumps({"topic": "a", "properties": properties}))
    with nullcontext() if fit else pytest.raises(InvalidMessage, match="at most 20 are allowed"):
        message.check(headers_max=5, header_value_units_max=20)


def test_a_row_of_another_protocol() -> None:
    view = RowView(pack_row("m1", b"text", [("lang", "en"), ("Other-Name", "x"), ("reply-to", "secret")]))
    assert written(Form.MESSAGE, view) == {
        "topic": "orders",
        "properties": {"lang": "en", "Other-Name": "x"},
        "headers": {},
        "body": "text",
    }
    event = written(Form.CLOUDEVENT, view, correlation99id="c")
    assert event.pop("eventmeshproperties") == '{"Other-Name":"x"}'
    assert event == EVENT | {
        "id": "m1",
        "source": "vibemq",
        "type": "vibemq-message",
        "datacontenttype": "text/plain",
        "lang": "en",
        "correlation99id": "c",
        "data": "text",
    }


@pytest.mark.parametrize(
    ("headers", "payload", "content_type"),
    [
        ({}, b'{"a":1}', "application/cloudevents+json"),
        ({"content-type": "text/plain"}, b"1", "application/cloudevents+json"),
        ({}, b"", "application/cloudevents+json"),
        ({}, b"text", "text/plain"),
        ({"ce-specversion": "1.0"}, b"{}", "application/cloudevents+json"),
        ({"ce-specversion": "1.0", "content-type": "application/json"}, b"{}", "application/cloudevents+json"),
        ({"ce-specversion": "1.0", "content-type": "application/json"}, b"{", "application/json"),
        ({"ce-specversion": "1.0", "content-type": "image/png"}, b"1", "image/png"),
    ],
)
def test_a_request_can_be_returned_by_a_java_client(headers: dict[str, str], payload: bytes, content_type: str) -> None:
    """Its handlers return the event that they were given, and it sends events of this type alone."""
    pushed = json.loads(forms.write(Form.CLOUDEVENT, "q", "m1", payload, headers, returnable=True))
    assert pushed["datacontenttype"] == content_type
    plain = json.loads(forms.write(Form.CLOUDEVENT, "q", "m1", payload, headers))
    assert plain.get("datacontenttype") == headers.get("content-type", None if headers else "text/plain")


def test_a_payload_that_is_no_text() -> None:
    view = RowView(pack_row("m1", b"\xff\0"))
    message = forms.write(Form.MESSAGE, "orders", "m1", view.payload, view.headers)
    assert json.loads(message)["properties"] == {"eventmesh-encoding": "base64"}
    back = RowView(read_message(message).row("fresh"))
    assert back.payload == b"\xff\0"
    assert names.ENCODING not in back.headers


def test_a_header_does_not_say_what_the_encoding_is() -> None:
    """A program may publish the properties of a message anew, with its bytes, by another protocol."""
    headers = {"eventmesh-encoding": "base64", "a": "b"}
    assert json.loads(forms.write(Form.MESSAGE, "t", "i", b"text", headers))["properties"] == {"a": "b"}


def test_headers_that_somebody_else_has_written() -> None:
    """No header makes a push impossible."""
    odd = [("eventmesh-properties", "{"), ("eventmesh-headers", "[1]"), ("ce-specversion", "9"), ("ce-id", "x")]
    view = RowView(pack_row("m1", b"1", [*odd, ("eventmesh-protocol", "nonsense")]))
    assert forms.form_of(view.headers) is Form.CLOUDEVENT
    assert written(Form.MESSAGE, view)["body"] == "1"
    event = written(Form.CLOUDEVENT, view)
    assert event.items() >= {"specversion": "1.0", "id": "x", "source": "vibemq", "type": "vibemq-message"}.items()


def test_what_no_client_reads_of_an_event_travels_beside_its_attributes() -> None:
    """The CloudEvents library of a Java client would raise, and the client end its connection."""
    odd = {"ce-My_Key": "x", "ce-time": "yesterday", "ce-source": "my app", "ce-dataschema": "a b", "ce-colour": "red"}
    headers = odd | {"ce-specversion": "1.0", "ce-id": "i", "ce-type": "t", "eventmesh-properties": '{"My":"","e":""}'}
    event = json.loads(forms.write(Form.CLOUDEVENT, "orders", "m1", b"", headers))
    kept = json.loads(event.pop("eventmeshproperties"))
    assert event == EVENT | {"id": "i", "source": "vibemq", "colour": "red", "e": ""}
    assert kept == {name: value for name, value in odd.items() if name != "ce-colour"}


def test_the_way_home_is_taken_out_of_a_reply() -> None:
    home = {"correlation99id": "address", "cluster": "vibemq", "reply99to99client": "vibemq"}
    message = read_message(json.dumps({"topic": "t", "properties": {"k": "v"} | home, "body": "b"})).as_reply()
    event = read_event(json.dumps(EVENT | home)).as_reply()
    assert message.reply_address == event.reply_address == "address"
    for reply in (message, event):
        assert "address" not in dict(reply.headers).values()
        assert dict(reply.headers)[names.TOPIC] == reply.topic


def test_what_the_c_client_needs_for_a_reply_is_taken_out_too() -> None:
    for added, left in (("vibemq", {}), ("mine", {"REPLY_TO": "mine"})):
        properties = {"REPLY_TO": added, "correlation99id": "address"}
        reply = read_message(json.dumps({"topic": "t", "properties": properties, "body": "b"})).as_reply()
        assert {name: value for name, value in reply.headers if not name.startswith("eventmesh-")} == left


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
VALUES = st.one_of(TEXT, st.integers(-(2**53), 2**53), st.booleans(), st.none())


@given(st.dictionaries(TEXT, VALUES, max_size=6), st.dictionaries(TEXT, TEXT, max_size=3), TEXT)
@example({"ce-": "0", "ce-foo": "1"}, {}, "")
def test_any_message_comes_back(properties: dict[str, Any], headers: dict[str, str], body: str) -> None:
    properties.pop("ttl", None)
    properties.pop("TTL", None)
    properties.pop("eventmesh-encoding", None)
    for attribute in CORE:
        # As an event it has this attribute instead.
        properties.pop(f"ce-{attribute}", None)
    sent = {"topic": "orders", "properties": properties, "headers": headers, "body": body}
    view = row_of(Form.MESSAGE, json.dumps(sent))
    assert written(Form.MESSAGE, view) == sent
    there = forms.write(Form.CLOUDEVENT, "orders", view.message_id, view.payload, view.headers)
    back = row_of(Form.CLOUDEVENT, there)
    assert back.payload == body.encode()
    found = written(Form.MESSAGE, back)
    assert found["properties"] == properties
    assert found["headers"].items() >= {key: value for key, value in headers.items() if value}.items()


EXTENSIONS = st.dictionaries(st.from_regex("[a-z][a-z0-9]{0,12}", fullmatch=True), TEXT, max_size=5)


@given(EXTENSIONS, st.binary(max_size=40))
def test_any_event_comes_back(extensions: dict[str, str], data: bytes) -> None:
    taken = {"ttl", "data", "datacontenttype", "datacontentencoding", "eventmeshproperties"}
    sent = EVENT | {name: value for name, value in extensions.items() if name not in taken | EVENT.keys()}
    if data:
        sent["data_base64"] = base64.b64encode(data).decode()
    view = row_of(Form.CLOUDEVENT, json.dumps(sent))
    assert view.payload == data
    assert written(Form.CLOUDEVENT, view) == sent
    back = row_of(Form.MESSAGE, forms.write(Form.MESSAGE, "orders", view.message_id, view.payload, view.headers))
    assert back.payload == data
    again = written(Form.CLOUDEVENT, back)
    again.pop("datacontenttype", None)
    again.pop("eventmeshproperties", None)
    if "data" in again:
        again["data_base64"] = base64.b64encode(again.pop("data").encode()).decode()
    assert again.items() >= {name: value for name, value in sent.items() if value}.items()


@given(st.binary(max_size=200))
def test_random_bytes_raise_the_one_error(raw: bytes) -> None:
    for form in Form:
        with pytest.raises(InvalidMessage):
            forms.read(form, raw)
