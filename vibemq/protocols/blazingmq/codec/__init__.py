"""BlazingMQ's wire, without a session: bytes to values and back.

    events.py       EventReader.receive_data(bytes), .read(bytes_max) -> [Event(type, codec, data, start, end)];
                    HEARTBEAT_REQ, HEARTBEAT_RSP
    control.py      decode_negotiation(event), decode_control(event) -> ControlMessage(r_id, choice),
                    encode_negotiation(codec, message), encode_control(codec, r_id, choice) -> a whole event;
                    the same for authentication
    messages.py     the classes of control messages, declared once as the schema of both codecs: `match message.choice`
    put.py          PutReader.add(events), .take(messages_max) -> [PutMessage]
    acks.py         build_acks([(status, correlation id, GUID, queue id)]), parse_confirms(events) -> iterator of tuples
    push.py         build_pushes([PushMessage]) -> events
    options.py      sub_queue_ids_option([sId]): the option that every PUSH carries
    properties.py   parse_area(data, schema_id) -> (properties, where the payload begins), build_area(properties)
    property_headers.py     the area <-> the headers of a row
    guid.py         guid_text, guid_of_message_id, GuidMaker
    rows.py         row_of_put(message, guid), PutLoader(message, guid, bytes_max).step() for compressed ones;
                    pushes_of_rows(rows, queue id, options) -> [PushMessage]
    features.py     BROKER_FEATURES, parse_features
    schema.py, ber.py, json_codec.py     behind control.py

What cannot be read on raises RemoteProtocolError: the connection ends. What is wrong with one message only raises
InvalidMessage, or stands in `PutMessage.fault`: that message is answered by a NACK.
"""
