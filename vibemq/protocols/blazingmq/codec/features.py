"""The features strings of the negotiation: `NAME:value,value;NAME:value`."""

from collections.abc import Mapping

BROKER_FEATURES = (
    "PROTOCOL_ENCODING:BER,JSON;HA:GRACEFUL_SHUTDOWN,GRACEFUL_SHUTDOWN_V2;MPS:MESSAGE_PROPERTIES_EX;"
    "SUBSCRIPTIONS:CONFIGURE_STREAM"
)
"""What a real broker advertises. The SDKs then post new-style properties, and configure by configureStream."""


FEATURES_CHARACTERS_MAX = 2_048
"""What stands behind is not looked at; SDKs write about a hundred."""


def parse_features(text: str) -> Mapping[str, frozenset[str]]:
    """The values of each feature. Whatever has no name or no value is left out."""
    found: dict[str, frozenset[str]] = {}
    for part in text[:FEATURES_CHARACTERS_MAX].split(";"):
        name, _, values = part.partition(":")
        named = frozenset(value.strip() for value in values.split(",")) - {""}
        if name.strip() and named:
            found[name.strip()] = found.get(name.strip(), frozenset()) | named
    return found


def has_new_style_properties(text: str) -> bool:
    """Whether a client with these features reads new-style properties; others are sent old ones."""
    return "MESSAGE_PROPERTIES_EX" in parse_features(text).get("MPS", ())
