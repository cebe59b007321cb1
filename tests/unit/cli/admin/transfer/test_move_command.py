"""What a move of messages says while it works."""

from typing import Any, cast

import pytest

from vibemq.cli.admin.transfer.move_command import Move, _run
from vibemq.cli.output import Output
from vibemq.client import Client

pytestmark = pytest.mark.anyio


class ThreeMessages:
    async def admin(self, verb: str, **arguments: Any) -> dict[str, Any]:
        return {"waiting": 3, "count": 3, "damaged": [], "left": 0, "next": None, "below": 4, "incarnation": "1"}


@pytest.mark.parametrize(("dry_run", "said"), [(True, "counted: 3 of 3 (100 %)"), (False, "moved: 3 of 3 (100 %)")])
async def test_a_dry_run_does_not_say_that_messages_were_moved(
    dry_run: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await _run(Move(cast(Client, ThreeMessages()), "a", "b", None, dry_run), Output(json=False))
    assert capsys.readouterr().err.splitlines() == [said]
