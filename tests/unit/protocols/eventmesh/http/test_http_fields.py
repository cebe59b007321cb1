"""Forms are read as everybody reads them, in whatever pieces."""

from unittest.mock import patch
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.protocols.eventmesh.http import fields
from vibemq.protocols.eventmesh.http.codes import EventMeshRefusal
from vibemq.protocols.eventmesh.http.fields import FIELDS_MAX, form_fields

PIECES = ["a", "%41", "%3D", "=", "%25", "%", "%4", "%zz", "%\n", "%\r", "%%", "+", "%C3%A9", "%e2%82%ac", "\n", " "]
NO_FORMS = (b"a=%ff", b"a=\xff", b"a=\xc3", b"a=%41\xc3\xa9", b"&" * FIELDS_MAX, b"x" * 5_000, b"a=" + b"%c3" * 50_000)


@given(st.lists(st.sampled_from(PIECES), max_size=99), st.integers(4, 9))
def test_escapes_are_those_that_a_form_has(pieces: list[str], at_once: int) -> None:
    text = "content=" + "".join(pieces)
    with patch.object(fields, "_PIECE_BYTES", at_once * 16):
        found = form_fields(text.encode())
    assert found == dict(parse_qsl(text, keep_blank_values=True))


@given(st.dictionaries(st.text(min_size=1, max_size=9).filter(lambda name: name == name.lower()), st.text(max_size=99)))
def test_every_form_is_read(form: dict[str, str]) -> None:
    assert form_fields(urlencode(form).encode()) == {name.lower(): value for name, value in form.items()}


@pytest.mark.parametrize("form", NO_FORMS)
def test_what_is_no_form_is_refused(form: bytes) -> None:
    with pytest.raises(EventMeshRefusal, match="the form cannot be read"):
        form_fields(form)
