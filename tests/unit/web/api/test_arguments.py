"""What a request brings, as the arguments of an operation."""

import pytest

from vibemq.errors import InvalidPayload
from vibemq.web.api.arguments import RequestReader
from vibemq.web.api.contract import Contract
from vibemq.web.api.endpoints import ENDPOINTS

CONTRACT = Contract(ENDPOINTS)
READER = RequestReader(CONTRACT)


@pytest.mark.parametrize("path", ["/dead-letters", "/dead-letters/export"])
@pytest.mark.parametrize("name", ["since", "until"])
def test_instants_of_a_query_are_texts_or_numbers(path: str, name: str) -> None:
    """Also where an endpoint hands its query on by itself."""
    (endpoint,) = [one for one in CONTRACT.endpoints if (one.method, one.path) == ("GET", path)]
    assert READER.query(endpoint, f"{name}=2026-11-26T00:35:00.007Z") == {name: 1_795_653_300_007}
    assert READER.query(endpoint, f"{name}=1795653300007") == {name: 1_795_653_300_007}
    with pytest.raises(InvalidPayload, match=f"{name} must be an instant with its time zone"):
        READER.query(endpoint, f"{name}=yesterday")
