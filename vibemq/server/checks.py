"""Options of plug-ins, checked by the plug-in's own model."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from vibemq.errors import ConfigInvalid


def plugin_settings(model: type[Any], values: Mapping[str, Any], what: str) -> Any:
    """Build the plug-in's settings. Raises ConfigInvalid with one sentence that names the key."""
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"]))
        known = ", ".join(sorted(model.model_fields))
        raise ConfigInvalid(f"{what}: {key}: {first['msg'].lower()}; known keys are {known}") from None
