"""Accounts and keys made by the command line while a real gateway serves: it knows of them at once, of a revocation
within two seconds (B6, W1, W4)."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from e2e.scenarios import ANSWER
from gateway.upstream.scripted import Script
from support.loopback import LoopbackUpstreams
from support.processes import PATIENCE_SECONDS, run, serving_gateway

KNOWN_WITHIN_SECONDS = 2.0
TURNS_MAX = 10
OUTPUT_TOKENS_MAX = 10
"""At a thousand dollars for a million tokens a turn reserves a cent and a little more."""

CONFIGURATION = """
[server]
absent_store = "false"
allow_inline_secrets = true
metrics_port = "off"

[accounts.main]
balance = "unlimited"

[keys.main]
account = "main"
secret = {{ inline = "the-configurations-own" }}

[routes.only]
base_url = "{base_url}"
credential = "none"
price = {{ input = "1", output = "1000" }}

[models.plain]
routes = ["only"]
"""


class Shop:
    """A gateway that serves, and the command line beside it."""

    def __init__(self, file: Path, url: str) -> None:
        self._file = file
        self._url = url

    def command(self, *arguments: str) -> str:
        """What `gateway ...` prints; it must succeed."""
        done = run(sys.executable, "-m", "gateway", *arguments, "--config", str(self._file))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def ask(self, secret: str) -> tuple[int, str | None]:
        """A turn over HTTP: its status, and the code of a refusal."""
        body = {"model": "plain", "input": "hi", "stream": True, "max_output_tokens": OUTPUT_TOKENS_MAX}
        headers = {"authorization": f"Bearer {secret}"}
        with httpx2.Client(timeout=PATIENCE_SECONDS) as client:
            answer = client.post(f"{self._url}/v1/responses", json=body, headers=headers)
        return answer.status_code, None if answer.status_code == 200 else answer.json()["error"]["code"]

    def answers_until(self, secret: str, wanted: tuple[int, str]) -> list[tuple[int, str | None]]:
        """What was answered before the first such answer; whoever asks two seconds from now gets it."""
        began, answers = time.monotonic(), list[tuple[int, str | None]]()
        while True:
            asked_after = time.monotonic() - began
            answer = self.ask(secret)
            if answer == wanted:
                return answers
            answers.append(answer)
            assert asked_after < KNOWN_WITHIN_SECONDS, answers

    def upgrade_status(self, secret: str) -> int:
        """What a WebSocket's handshake is answered with."""
        headers = {"authorization": f"Bearer {secret}"}
        try:
            with connect(f"{self._url.replace('http', 'ws', 1)}/v1/responses", additional_headers=headers):
                return 101
        except InvalidStatus as refused:
            return refused.response.status_code


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with _open(tmp_path_factory.mktemp("shop")) as shop:
        yield shop


@contextmanager
def _open(folder: Path) -> Iterator[Shop]:
    with LoopbackUpstreams([Script("only", [ANSWER] * 1000)]) as upstreams:
        file = folder / "gateway.toml"
        file.write_text(CONFIGURATION.format(base_url=upstreams.base_url("only")), encoding="utf-8")
        with serving_gateway(file) as (process, url):
            shop = Shop(file, url)
            shop.command("accounts", "create", "acme", "--deposit", "5.00")
            yield shop
            assert re.search(r"\bgw-[\w-]{20}", process.output) is None, "a secret in the log"


def test_a_key_works_as_it_is_made_and_stops_at_what_it_may_spend(shop: Shop) -> None:
    """B6: 402 before any upstream call; the account paid what the turns cost."""
    secret = shop.command(
        "keys", "create", "--account", "acme", "--name", "small", "--spend-per-day", "0.03", "--quiet"
    )
    answers = [shop.ask(secret)]
    while answers[-1] == (200, None) and len(answers) < TURNS_MAX:
        answers.append(shop.ask(secret))
    assert answers[0] == (200, None)
    assert answers[-1] == (402, "spend_limit_reached")
    assert "available 5.00" not in shop.command("accounts", "show", "acme")


def test_a_revoked_key_is_refused_within_two_seconds(shop: Shop) -> None:
    """W1, W4: on both doors."""
    secret = shop.command("keys", "create", "--account", "acme", "--name", "leaked", "--quiet")
    assert shop.ask(secret) == (200, None)
    assert shop.upgrade_status(secret) == 101
    shop.command("keys", "revoke", "leaked")
    before = shop.answers_until(secret, (401, "invalid_api_key"))
    assert set(before) <= {(200, None)}
    assert shop.upgrade_status(secret) == 401


def test_a_rotated_key_works_beside_the_new_one_until_its_overlap_ends(shop: Shop) -> None:
    """B6."""
    old = shop.command("keys", "create", "--account", "acme", "--name", "ci", "--quiet")
    new = shop.command("keys", "rotate", "ci", "--overlap", "24h", "--quiet")
    assert [shop.ask(old), shop.ask(new)] == [(200, None), (200, None)]
    newest = shop.command("keys", "rotate", "ci", "--overlap", "0s", "--quiet")
    shop.answers_until(old, (401, "expired_api_key"))
    shop.answers_until(new, (401, "expired_api_key"))
    assert shop.ask(newest) == (200, None)
