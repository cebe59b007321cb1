"""Options of plug-ins, checked by the plug-in's own model."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from vibemq.config import number_beyond
from vibemq.errors import ConfigInvalid


def plugin_settings(model: type[Any], values: Mapping[str, Any], what: str) -> Any:
    """Build the plug-in's settings. Raises ConfigInvalid with one sentence that names the key."""
    if _needs_no_check(model, values):
        return model.model_construct(**values)
    try:
        made = model(**values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"]))
        known = ", ".join(sorted(model.model_fields))
        raise ConfigInvalid(f"{what}: {key}: {first['msg'].lower()}; known keys are {known}") from None
    if (found := number_beyond(made)) is not None:
        raise ConfigInvalid(f"{what}: {'.'.join(map(str, found[0]))}: it must be at most {found[1]}")
    return made


def _needs_no_check(model: type[BaseModel], values: Mapping[str, Any]) -> bool:
    """Defaults and flags fit as they are. The first validator that is made loads much of pydantic, which an embedded
    broker does not wait for."""
    fields, checks = model.model_fields, model.__pydantic_decorators__
    if checks.field_validators or checks.model_validators or model.model_config.get("validate_default"):
        return False
    if any(field.is_required() for field in fields.values()):
        return False
    flags = {name for name, field in fields.items() if field.annotation is bool and not field.metadata}
    return all(name in flags and type(value) is bool for name, value in values.items())
