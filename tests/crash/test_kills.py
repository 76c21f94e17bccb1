"""`kill -9` at random instants under load: real processes, real stores. A seed is a bug report.

Afterwards, from the store alone: no reservation is open, no turn was charged twice or not as its upstream said, every
upstream call has its attempt on record, the books balance (B1, B7, B8, L2).
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crash.fleets import (
    BALANCE,
    PRICE,
    Asked,
    Stage,
    StoreSettings,
    kill,
    load,
    postgres_store,
    running,
    sqlite_store,
    stage,
    url_of,
)

pytestmark = pytest.mark.widens

IS_LONG = bool(os.environ.get("GATEWAY_LONG"))
KILLS = 110 if IS_LONG else 6
"""For each store."""
SEED = int(os.environ.get("GATEWAY_SEED", "4"))
SLOTS = 3
"""Processes that are killed and started again, all on one store."""
CLIENTS = 8
MODELS = ("plain", "replayed", "broken")


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSettings:
    """One, then the other."""
    return sqlite_store(tmp_path) if request.param == "sqlite" else postgres_store(request.getfixturevalue("fresh_dsn"))


class Fleet:
    """Slots, in each of which a process is started, killed at a random instant, and started again."""

    def __init__(self, stage: Stage, kills: int) -> None:
        self._stage = stage
        self._kills_left = kills
        self._lock = threading.Lock()
        self._urls: dict[int, str] = {}
        self.killed = 0
        self.killed_while_it_started = 0
        self.output: list[str] = []

    def url(self) -> str | None:
        """One that serves just now."""
        urls = list(self._urls.values())
        return random.choice(urls) if urls else None

    def run(self) -> None:
        """Until all kills are done."""
        threads = [threading.Thread(target=self._run_slot, args=(slot,), daemon=True) for slot in range(SLOTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _may_kill(self) -> bool:
        with self._lock:
            self._kills_left -= 1
            return self._kills_left >= 0

    def _run_slot(self, slot: int) -> None:
        draw = random.Random(f"{SEED} {slot}")
        while self._may_kill():
            with self._stage.start() as process:
                if draw.random() < 0.15:
                    time.sleep(draw.uniform(0.1, 1.5))
                    self.killed_while_it_started += 1
                else:
                    self._urls[slot] = url_of(process)
                    time.sleep(draw.uniform(0.05, 0.8))
                    self._urls.pop(slot)
                kill(process)
                self.killed += 1
                self.output.append(process.output)


def test_kill_9_at_random_instants_under_load(
    store: StoreSettings, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """B1, B7, B8, L2."""
    with stage(tmp_path, store) as s:
        fleet = Fleet(s, KILLS)
        with load(fleet.url, MODELS, CLIENTS) as asked:
            fleet.run()
        assert fleet.killed == KILLS
        with s.serve():
            s.wait_until_at_rest()
        assert_right(s, asked)
        record_property(
            "seen", f"{fleet.killed} kills, {fleet.killed_while_it_started} in the start; {summary(s, asked)}"
        )


def assert_right(s: Stage, asked: list[Asked]) -> None:
    """What the store says agrees with what the clients and the upstreams saw."""
    money = s.money()
    models = {row[0]: str(row[1]) for row in s.fetch("select turn_id, model from turn")}
    for turn_id, ended in money.items():
        # reserved, and killed before it was recorded, called nobody
        model = models.get(turn_id, "never begun")
        assert ended in ALLOWED[model], (turn_id, model, ended)
    for one in asked:
        if one.status == 200:
            assert money[one.turn_id] in (*ALLOWED[one.model],), one
        if one.is_completed:
            assert money[one.turn_id] in (f"settled {PRICE}", "expired"), one
    for name, script in s.scripts.items():
        ((attempts,),) = s.fetch(f"select count(*) from attempt where route = '{name}'")
        assert len(script.calls) <= attempts, name
    charged = sum(int(ended.split()[1]) for ended in money.values() if ended.startswith("settled"))
    assert s.fetch("select balance, open from account") == [(BALANCE - charged, 0)]
    assert s.fetch("select sum(nanodollars) from entry where kind = 'deposit'") == [(BALANCE,)]


ESTIMATES = (3000, 5000, 7000)
"""A token for the input, and one, two or three for the words: the reset may overtake some of them."""
ALLOWED = {
    # a model: how its turns may have ended in the books
    "plain": (f"settled {PRICE}", "expired", "voided"),
    "replayed": (f"settled {PRICE}", "expired", "voided"),
    "broken": (*(f"settled {nanodollars}" for nanodollars in ESTIMATES), f"settled {PRICE}", "expired", "voided"),
    "silent": ("expired",),
    "never begun": ("expired", "voided"),
}


def summary(s: Stage, asked: list[Asked]) -> str:
    """What there was to go wrong."""
    ended = [ended.split()[0] for ended in s.money().values()]
    counts = ", ".join(f"{ended.count(word)} {word}" for word in ("settled", "voided", "expired"))
    return f"{len(asked)} turns asked, {sum(one.is_completed for one in asked)} completed; {counts}"


def test_of_two_processes_on_one_store_the_other_sweeps(store: StoreSettings, tmp_path: Path) -> None:
    """B7: nobody needs to start the dead one again."""
    with stage(tmp_path, store) as s, s.serve() as (first, url), s.serve() as (other, other_url):
        with running(url, *["silent"] * 4) as asked, running(other_url, "long") as living:
            kill(first)
            s.wait_until_open(1)
            assert sorted(s.money().values()) == [*["expired"] * 4, "reserved"]
        s.wait_until_at_rest()
        assert [one.is_completed for one in living] == [True]
        assert not any(one.is_completed for one in asked)
        assert other.output.count('"lease_ended"') == 4
        assert sorted(s.money().values()) == [*["expired"] * 4, f"settled {PRICE}"]
