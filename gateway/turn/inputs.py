"""What a turn's inputs are looked at for on their way to the machine."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from gateway.core.events import EventClass
from gateway.core.messages import Batch, Handed, Headers, Input
from gateway.ports import Stamped
from gateway.turn.passing import Inlet, Keeps, Passes


@dataclass(slots=True)
class Reading:
    """One attempt, from the side that listens."""

    inlet: Inlet
    inputs: trio.MemoryReceiveChannel[Stamped]
    scope: trio.CancelScope

    @classmethod
    def of(cls, passes: Passes, keeps: Keeps) -> Reading:
        """One that begins."""
        sending, receiving = trio.open_memory_channel[Stamped](0)
        return cls(Inlet(sending, passes, keeps), receiving, trio.CancelScope())


def passes_on(arrived: Input) -> bool:
    """Whether it can neither end a turn nor commit it."""
    if isinstance(arrived, Batch):
        return all(event.kind is EventClass.OUTPUT for event in arrived.events)
    return isinstance(arrived, Handed)


async def let_the_instant_pass(passes: int) -> None:
    """Let all that happens at this instant come in before something irrevocable is done: the outcome is the same under
    every task order. What takes the most passes of the scheduler is a departure (ports.Downstream)."""
    for _ in range(passes - 1):
        await trio.lowlevel.cancel_shielded_checkpoint()  # a cancellation is seen at the last one, at the same instant
    await trio.lowlevel.checkpoint()


def request_id_of(headers: Headers) -> str | None:
    """The upstream's name for the call."""
    return next((value for name, value in headers if name == "x-request-id"), None)
