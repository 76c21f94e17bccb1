"""What Hypercorn's configuration has no names for. Under Hypercorn's own command line these defaults hold."""

from __future__ import annotations

from hypercorn.config import Config

from gateway import limits


class HardenedConfig(Config):
    """Hypercorn's, and more. Durations are seconds."""

    write_seconds: float = limits.WRITE_SECONDS_MAX
    """T6: for one write."""
    head_seconds: float = 15.0
    """From a head's first byte to its end: heads are some KiB, sent at once; three retransmissions fit."""
    body_pause_seconds: float = 20.0
    """What a body may lag behind the slowest pace: a phone in a tunnel, not a peer that counts its bytes out."""
    body_bytes_per_second: float = 500.0
    """The slowest pace: below that of any network that carries TLS."""


def settings_of(config: Config) -> HardenedConfig | type[HardenedConfig]:
    """A configuration's, or the defaults."""
    return config if isinstance(config, HardenedConfig) else HardenedConfig
