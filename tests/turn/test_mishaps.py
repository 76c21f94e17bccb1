"""What goes wrong in the gateway itself, as the failures that its client is told (§4, X)."""

from __future__ import annotations

import pytest
import trio

from gateway.core.failures import Failure, FailureKind
from gateway.core.messages import Door
from gateway.turn.mishaps import is_bug, selection_failure
from support.virtual import in_orders


@pytest.mark.parametrize(
    ("door", "code"), [(Door.HTTP, "route_selection_failed"), (Door.WEBSOCKET, "websocket_response_failed")]
)
def test_each_door_has_its_own_code_for_a_choice_that_failed(door: Door, code: str) -> None:
    """§4's last point."""
    text = "no route could be chosen for the replay"
    assert selection_failure(door) == Failure(FailureKind.ROUTE_SELECTION, code, 500, text)


@in_orders(1)
async def test_a_cancellation_and_the_processs_end_are_no_bugs() -> None:
    """T10: alone or among others, of which one may be a bug."""
    judged: list[bool] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as cancelled:
            judged = [is_bug(cancelled), is_bug(BaseExceptionGroup("both", [cancelled, ValueError()]))]
            raise
    assert judged == [False, False]
    assert [is_bug(end) for end in (KeyboardInterrupt(), SystemExit())] == [False, False]
    assert not is_bug(BaseExceptionGroup("nested", [ValueError(), BaseExceptionGroup("", [SystemExit()])]))


def test_whatever_else_is_one() -> None:
    """X: `internal_error`."""
    assert is_bug(ValueError())
    assert is_bug(ExceptionGroup("both", [ValueError(), ExceptionGroup("", [KeyError()])]))
