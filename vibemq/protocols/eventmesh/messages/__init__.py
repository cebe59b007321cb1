"""What both doors of EventMesh share: its two forms of a message, and the rows that they become.

names       the headers of a row that came of a message
received    a message as it came: topic, payload, headers
nesting     text and JSON of strangers, and JSON that is too deep to be written again
message     EventMeshMessage (AccessMessage) <-> row
cloudevent  CloudEvents in the JSON format <-> row
forms       a row of any origin in the form that a consumer wants
"""
