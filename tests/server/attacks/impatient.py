"""`python -m gateway` with short patience: slow peers are cut within a test's time."""

from gateway.__main__ import main
from gateway.server.hardened.settings import HardenedConfig

HEAD_SECONDS = 1.0
BODY_PAUSE_SECONDS = 1.0

if __name__ == "__main__":
    HardenedConfig.head_seconds = HEAD_SECONDS
    HardenedConfig.body_pause_seconds = BODY_PAUSE_SECONDS
    main()
