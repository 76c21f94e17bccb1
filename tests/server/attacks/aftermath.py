"""After an attack: the process serves, has given back what it took, and nobody has noticed anything."""

from __future__ import annotations

from server.attacks.ground import Ground, Witness, eventually

MEMORY_GROWTH_BYTES_MAX = 48 * 1024 * 1024
"""Over the whole suite: a message at its bound of 1 MiB is there a few times, and an allocator keeps some."""
SILENCE_SECONDS_MAX = 2.0
"""The witness is sent something every 0.05 s. The machine may be busy; an attack that blocks takes longer."""
WITNESSES = 1
POOLED_MAX = 10
"""Idle connections to upstreams, kept for the next turn."""


def assert_nothing_has_happened(attacked: Ground, witness: Witness, at_rest: tuple[int, int]) -> None:
    attacked.play_turn()
    memory, descriptors = at_rest
    assert eventually(lambda: attacked.open_calls == 0), "a turn goes on whose client has left"
    assert eventually(lambda: attacked.connections <= WITNESSES), f"{attacked.connections} connections"
    assert attacked.descriptors <= descriptors + POOLED_MAX
    assert attacked.resident_bytes - memory < MEMORY_GROWTH_BYTES_MAX
    longest, problems = witness.look()
    assert problems == []
    assert longest < SILENCE_SECONDS_MAX
    assert "Traceback" not in attacked.process.output
    assert "connection_dropped" not in attacked.process.output
