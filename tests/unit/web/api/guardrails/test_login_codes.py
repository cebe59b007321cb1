"""Codes for one login."""

from vibemq.model.access import Principal
from vibemq.web.api.guardrails.login_codes import CODE_S, CODES_MAX, LoginCodes

ADA = Principal("ada")


def test_a_code_is_worth_one_login() -> None:
    codes = LoginCodes()
    codes.keep("secret", ADA, 0.0)
    assert codes.take("other", 1.0) is None
    assert codes.take("secret", 1.0) == ADA
    assert codes.take("secret", 1.0) is None


def test_a_code_ends_after_a_minute() -> None:
    codes = LoginCodes()
    codes.keep("secret", ADA, 0.0)
    assert codes.take("secret", CODE_S) is None
    assert len(codes) == 0


def test_of_too_many_codes_the_oldest_ends() -> None:
    codes = LoginCodes()
    for number in range(CODES_MAX + 1):
        codes.keep(str(number), ADA, 0.0)
    assert len(codes) == CODES_MAX
    assert codes.take("0", 1.0) is None
    assert codes.take("1", 1.0) == ADA
