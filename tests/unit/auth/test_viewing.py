"""Lists compare a name to all rules at once, and the answer is that of one rule after the other."""

from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.auth.matrix import INSPECT
from vibemq.auth.policy import Policy
from vibemq.auth.viewing import Patterns, fits
from vibemq.model.access import Action, Principal, ResourceKind, Rule

PATTERNS = st.text("ab*", min_size=1, max_size=6)
NAMES = st.text("ab", max_size=8)
RULES = st.lists(
    st.builds(
        Rule,
        st.sampled_from([ResourceKind.QUEUE, ResourceKind.GROUP]),
        PATTERNS,
        st.frozensets(st.sampled_from(["inspect", "publish", "*"]), min_size=1),
    ),
    max_size=6,
)


@given(st.lists(PATTERNS, max_size=6), NAMES)
def test_a_name_fits_when_it_fits_one_pattern(patterns: list[str], name: str) -> None:
    assert Patterns(patterns).fit(name) == any(fits(pattern, name) for pattern in patterns)


@given(RULES, st.none() | RULES, st.booleans(), NAMES)
def test_a_list_shows_what_a_single_question_allows(
    rules: list[Rule], narrower: list[Rule] | None, superuser: bool, name: str
) -> None:
    policy = Policy({"ann": rules}, superusers=("ann",) if superuser else ())
    ann = Principal("ann", superuser=superuser, rules=None if narrower is None else tuple(narrower))
    assert policy.viewer(ann, Action.INSPECT)(name) == policy.allows(ann, INSPECT, name)


def test_names_that_lack_a_piece_are_compared_to_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = Mock(return_value=False)
    monkeypatch.setattr("vibemq.auth.viewing.fits", compared)
    patterns = Patterns([f"*a*b*{number:03}*" for number in range(900)])
    assert len(patterns) == 900
    assert not any(patterns.fit(f"a-b-{number}") for number in range(100, 110))
    assert compared.call_count == 10
