"""Conditions on the properties of messages, and how typed properties are kept in headers.

`Selector` is what a subscription filters with. `headers_of` and `properties_of` turn typed properties into headers and
back. The grammar is in docs/reference/selectors.md.
"""

from vibemq.model.selector.properties import (
    TYPES_HEADER,
    Property,
    PropertyType,
    header_of,
    headers_of,
    name_of,
    properties_in,
    properties_of,
)
from vibemq.model.selector.selector import Selector, SelectorSet
from vibemq.model.selector.values import Text

__all__ = [
    "TYPES_HEADER",
    "Property",
    "PropertyType",
    "Selector",
    "SelectorSet",
    "Text",
    "header_of",
    "headers_of",
    "name_of",
    "properties_in",
    "properties_of",
]
