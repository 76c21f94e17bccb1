"""Configuration files for the tests: the smallest valid one, and ways to change one thing in it."""

from pathlib import Path

import pytest

from gateway.config import Config, ConfigError, LedgerTable, parse
from gateway.config.sources import Surroundings

ENVIRON = {"GATEWAY_KEY": "s3cret-client", "OPENAI_API_KEY": "s3cret-upstream", "OTHER_KEY": "s3cret-other"}

ACCOUNT = """
[accounts.main]
balance = "unlimited"
"""
KEY = """
[keys.laptop]
account = "main"
secret = { env = "GATEWAY_KEY" }
"""
ROUTE = """
[routes.openai]
base_url = "https://api.openai.com/v1"
credential = { env = "OPENAI_API_KEY" }
price = "free"
"""
MODEL = """
[models."gpt-5.6"]
routes = ["openai"]
"""
SMALLEST = ACCOUNT + KEY + ROUTE + MODEL


def parsed(text: str, directory: Path = Path()) -> Config:
    return parse(text, file="gateway.toml", environ=ENVIRON, directory=directory)


def ledger_beside(directory: Path | str = "", **given: str) -> LedgerTable:
    """The ledger's table as a file in that directory gets it where it says no more than `given`."""
    surroundings = Surroundings(environ={}, directory=Path(directory), inline_is_allowed=False)
    return LedgerTable.model_validate(given, context=surroundings)


def problems(text: str, directory: Path = Path()) -> list[str]:
    """The lines of the ConfigError that `text` raises."""
    with pytest.raises(ConfigError) as caught:
        parsed(text, directory)
    return str(caught.value).splitlines()


def account(line: str) -> str:
    return f"[accounts.main]\n{line}\n" + KEY + ROUTE + MODEL


def key(line: str) -> str:
    return ACCOUNT + f'[keys.laptop]\naccount = "main"\n{line}\n' + ROUTE + MODEL


def route(*lines: str) -> str:
    """The smallest file, with these lines in its route in place of the ones that set the same keys."""
    written = {line.split(" = ")[0]: line for line in ROUTE.strip().splitlines()[1:]}
    written |= {line.split(" = ")[0]: line for line in lines}
    return ACCOUNT + KEY + "[routes.openai]\n" + "\n".join(written.values()) + MODEL


def server(line: str) -> str:
    return f"[server]\n{line}\n" + SMALLEST
