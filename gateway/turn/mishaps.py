"""What goes wrong in the gateway itself while a turn runs, as the failures that its client is told."""

from __future__ import annotations

from typing import Final

import trio

from gateway.core.failures import Failure, FailureKind, Refusal, gateway_failure
from gateway.core.messages import Door
from gateway.core.money import Result

INTERNAL_FAILURE: Final = gateway_failure(
    FailureKind.INTERNAL, "internal_error", "the gateway failed; the failure is logged"
)
STORE_AWAY: Final = gateway_failure(
    FailureKind.INTERNAL, "ledger_unavailable", "no turn can start while the ledger is away"
)


def ledger_is_away() -> Refusal:
    """The same to a turn that has not begun."""
    return Refusal(STORE_AWAY.code, STORE_AWAY.message)


def selection_failure(door: Door) -> Failure:
    """§4's last point: each door has its own code for it."""
    code = "route_selection_failed" if door is Door.HTTP else "websocket_response_failed"
    return gateway_failure(FailureKind.ROUTE_SELECTION, code, "no route could be chosen for the replay")


def is_bug(error: BaseException) -> bool:
    """Whether an exception is the gateway's own fault and not a cancellation or the process's end."""
    outside = (trio.Cancelled, KeyboardInterrupt, SystemExit)
    if isinstance(error, BaseExceptionGroup):
        return error.split(outside)[0] is None
    return not isinstance(error, outside)


NO_MONEY: Final = {
    Result.INSUFFICIENT_BALANCE: ("insufficient_balance", "the account's balance does not cover the turn"),
    Result.ACCOUNT_NOT_FOUND: ("insufficient_balance", "the key's account does not exist"),
    Result.ACCOUNT_CLOSED: ("insufficient_balance", "the key's account is closed"),
    Result.SPEND_LIMIT_REACHED: ("spend_limit_reached", "the turn could pass what the key may spend"),
}
"""Why nothing was set aside: the refusal's code and message (B6)."""
