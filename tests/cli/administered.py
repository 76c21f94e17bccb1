"""The configuration whose store the commands of these tests change, and how their answers are read."""

from __future__ import annotations

from click.testing import Result

CONFIGURATION = """
[accounts.main]
balance = "unlimited"

[keys.main]
account = "main"
secret = { env = "GATEWAY_KEY" }

[routes.only]
base_url = "https://upstream.test/v1"
credential = "none"
price = "free"

[models.gpt]
routes = ["only"]
"""


def told(result: Result) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    return result.exit_code, result.stdout, result.stderr
