"""For Hypercorn's own command line; it reads hypercorn.toml.

    GATEWAY_CONFIG=gateway.toml hypercorn -k trio -c file:deploy/hypercorn.py gateway.app:app

The gateway's configuration is checked before any worker starts: one that cannot be used ends the command with exit code
2. With the TOML file alone a worker finds that out, and Hypercorn ends with 0: it loses its workers' codes.
"""

import tomllib
from pathlib import Path

from gateway.app import check_configured

check_configured()
globals().update(tomllib.loads(Path(__file__).with_name("hypercorn.toml").read_text("utf-8")))
del Path, check_configured
