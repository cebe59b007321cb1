"""Leases: nobody else can make one, and whose it is counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.errors import InvalidPayload, NotAuthorized
from vibemq.model.access import Principal
from vibemq.web.api.errors import HttpCode, Problem
from vibemq.web.api.messages.leases import Lease, LeaseSeal

SEAL = LeaseSeal(b"k" * 32, b"run-0001")
USER = Principal("user")
NUMBERS = st.integers(0, (1 << 64) - 1)


@given(st.builds(Lease, NUMBERS, NUMBERS, NUMBERS), st.text(max_size=20), st.text(max_size=20))
def test_a_lease_is_what_was_sealed(lease: Lease, name: str, token_id: str) -> None:
    principal = Principal(name, token_id=token_id)
    text = SEAL.seal(lease, principal)
    assert SEAL.open(text, principal) == lease
    assert len(text) == 75
    assert text.isascii()


@given(st.builds(Lease, NUMBERS, NUMBERS, NUMBERS), st.integers(0, 74), st.sampled_from("AZaz09-_=%é\n"))
def test_a_changed_one_is_refused(lease: Lease, at: int, letter: str) -> None:
    text = SEAL.seal(lease, USER)
    changed = text[:at] + letter + text[at + 1 :]
    if changed == text:
        return
    with pytest.raises((InvalidPayload, Problem)) as refusal:
        SEAL.open(changed, USER)
    if isinstance(refusal.value, Problem):
        assert (refusal.value.code, at < 11) == (HttpCode.LEASE_GONE, True), "only the run says that it is old"


@pytest.mark.parametrize("text", ["", "x", "A" * 74, "A" * 76, "A" * 1_000_000, "\ud800" * 75, "é" * 75])
def test_what_is_no_lease(text: str) -> None:
    with pytest.raises(InvalidPayload):
        SEAL.open(text, USER)


def test_a_lease_of_another_user_another_token_another_run_and_another_broker() -> None:
    text = SEAL.seal(Lease(1, 2, 3), USER)
    for other in (
        Principal("other"),
        Principal("user", token_id="t"),
        Principal("user\0t"),
        Principal(""),
        Principal("user", since=7),
    ):
        with pytest.raises(NotAuthorized):
            SEAL.open(text, other)
    with pytest.raises(Problem) as gone:
        LeaseSeal(b"k" * 32, b"run-0002").open(text, USER)
    assert gone.value.code is HttpCode.LEASE_GONE
    with pytest.raises(InvalidPayload):
        LeaseSeal(b"l" * 32, b"run-0001").open(text, USER)
    promoted = Principal("user", superuser=True, credential=b"new password")
    assert SEAL.open(text, promoted) == Lease(1, 2, 3)
