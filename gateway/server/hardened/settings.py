"""What Hypercorn's configuration has no names for. Under Hypercorn's own command line these defaults hold."""

from __future__ import annotations

from hypercorn.config import Config

from gateway import limits
from gateway.server.hardened.patience import Pace


class HardenedConfig(Config):
    """Hypercorn's, and more. Durations are seconds."""

    write_seconds: float = limits.WRITE_SECONDS_MAX
    """T6: for one write."""
    pace: Pace = Pace()
    """What a request may take to arrive."""


def settings_of(config: Config) -> HardenedConfig | type[HardenedConfig]:
    """A configuration's, or the defaults."""
    return config if isinstance(config, HardenedConfig) else HardenedConfig
