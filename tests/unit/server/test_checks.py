"""Options of plug-ins."""

from typing import Annotated, Any, Self

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from vibemq import plugins
from vibemq.errors import ConfigInvalid
from vibemq.server.checks import plugin_settings


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    strict: bool = False
    size: Annotated[int, Field(ge=1)] = 5


class Needed(Options):
    key: str


class Together(Options):
    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.strict:
            raise ValueError("not strict")
        return self


class Alone(Options):
    @field_validator("strict")
    @classmethod
    def _fits(cls, value: bool) -> bool:
        return not value


@pytest.mark.parametrize("group", plugins.KINDS)
def test_defaults_of_our_own_plug_ins_are_what_a_check_makes_of_them(group: str) -> None:
    for name in plugins.names(group):
        model = plugins.find(group, name).settings
        assert plugin_settings(model, {}, "it") == model()


@pytest.mark.parametrize("values", [{}, {"strict": True}, {"size": 7}, {"size": "7", "strict": "yes"}])
def test_options_are_taken(values: dict[str, Any]) -> None:
    made = plugin_settings(Options, values, "it")
    assert made == Options(**values)
    assert type(made.strict) is bool


@pytest.mark.parametrize(
    ("model", "values", "named"),
    [
        (Options, {"size": 0}, "size"),
        (Options, {"strict": "perhaps"}, "strict"),
        (Options, {"size": True, "strict": 2}, "strict"),
        (Options, {"other": True}, "other"),
        (Options, {"size": 1 << 63}, "size: it must be at most 9223372036854775807"),
        (Needed, {}, "key"),
        (Needed, {"strict": True}, "key"),
        (Together, {"strict": True}, "not strict"),
    ],
)
def test_what_does_not_fit_is_refused(model: type[BaseModel], values: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigInvalid, match=named):
        plugin_settings(model, values, "it")


def test_a_models_own_checks_are_made() -> None:
    assert plugin_settings(Alone, {"strict": True}, "it").strict is False


def refuse(value: bool) -> bool:
    raise ValueError("never")


class Annotations(BaseModel):
    strict: Annotated[bool, AfterValidator(refuse)] = False


class CheckedDefaults(BaseModel):
    model_config = ConfigDict(validate_default=True)
    size: int = "many"  # type: ignore[assignment]


@pytest.mark.parametrize(("model", "values"), [(Annotations, {"strict": True}), (CheckedDefaults, {})])
def test_checks_that_stand_elsewhere_than_in_a_validator_are_made(
    model: type[BaseModel], values: dict[str, Any]
) -> None:
    with pytest.raises(ConfigInvalid):
        plugin_settings(model, values, "it")
