"""`gateway keys`: who may use the gateway, beside the keys of the configuration file.

Only digests are kept: a secret is shown once, as its key is made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli.accounts import REFUSALS, table
from gateway.cli.configured import read_config
from gateway.cli.live_store import NOT_DONE, config_option, json_option, live_store
from gateway.cli.written import DOLLARS, DURATION, NAME, NAMES, TIME_ZONE, UNTIL, Until, told_time
from gateway.config import Config
from gateway.config.amounts import dollars
from gateway.config.instants import instant_of
from gateway.config.problems import suggestion
from gateway.core.keys import UTC, Key, KeyLimits
from gateway.core.money import Result
from gateway.keys.administration import (
    NewKey,
    all_keys,
    create_key,
    keys_called,
    keys_with_id,
    revoke_keys,
    rotate_key,
    working,
)
from gateway.keys.rows import StoredKey
from gateway.limits import REQUESTS_PER_MINUTE_MAX
from gateway.store.commit import transact
from gateway.store.database import Session

COLUMNS: Final = ("id", "account", "name", "state", "created", "expires", "limits")

account_option = click.option("--account", type=NAME, help="Whose key is meant, where several accounts have the name.")
quiet_option = click.option("--quiet", is_flag=True, help="Print the secret and nothing else.")
expires_option = click.option(
    "--expires", type=UNTIL, help="After 30d, 12h or 90m; or at 2027-01-31, 0:00 in its time zone, or at a full time."
)


class KeyRefused(Exception):
    """What was asked for a key cannot be done: the result's word, and a sentence."""

    def __init__(self, word: str, sentence: str) -> None:
        super().__init__(sentence)
        self.word = word
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Shown:
    """How a command answers."""

    as_json: bool
    is_quiet: bool = False


@click.group()
def keys() -> None:
    """Create, list, rotate and revoke the keys that clients show.

    A running gateway knows of it within two seconds. Exit code 1: it could not be done, and nothing was changed.
    """


@keys.command("create")
@click.option("--account", type=NAME, required=True, help="Who pays for its turns.")
@click.option("--name", type=NAME, required=True, help="What it is called in logs, records and limits.")
@expires_option
@click.option("--models", type=NAMES, help="The models it may use, with commas between; all if left out.")
@click.option("--requests-per-minute", type=click.IntRange(1, REQUESTS_PER_MINUTE_MAX), help="In all workers together.")
@click.option("--spend-per-day", type=DOLLARS, help="Dollars; what running turns have set aside counts.")
@click.option("--spend-per-month", type=DOLLARS, help="Dollars.")
@click.option("--time-zone", type=TIME_ZONE, default=UTC, show_default=True, help="Whose days and months are meant.")
@click.option(
    "--replay", type=click.Choice(["auto", "never"]), default="auto", help="never: failures are told as they come."
)
@config_option
@json_option
@quiet_option
def create(
    account: str,
    name: str,
    expires: Until | None,
    models: tuple[str, ...] | None,
    requests_per_minute: int | None,
    spend_per_day: int | None,
    spend_per_month: int | None,
    time_zone: str,
    replay: str,
    file: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Make a key and show its secret, once."""
    allowed = None if models is None else frozenset(models)
    limits = KeyLimits(allowed, requests_per_minute, spend_per_day, spend_per_month, time_zone)
    config = read_config(file)
    with _refusals(as_json), live_store(file) as database:
        _require_new_name(config, account, name)
        _require_models(config, models or ())

        def work(session: Session) -> NewKey:
            expires_at = _expires_at(expires, time_zone, session.now())
            made = create_key(session, Key(name, account, replay == "never", expires_at, limits))
            return made if isinstance(made, NewKey) else _refuse(made, account, name)

        new = transact(database, work)
    _show_new(new, Shown(as_json, quiet))


@keys.command("list")
@click.option("--account", type=NAME, help="Only the keys of this account.")
@config_option
@json_option
def list_keys(account: str | None, file: Path, as_json: bool) -> None:
    """Show the keys there are and were; the configuration file's own are not among them."""
    with live_store(file) as database, database.snapshot() as session:
        now = session.now()
        found = [stored for stored in all_keys(session) if account in (None, stored.key.account)]
    rows = [_row(stored, now) for stored in found]
    click.echo(json.dumps({"keys": rows}) if as_json else "\n".join(table(COLUMNS, [_in_words(row) for row in rows])))


@keys.command("revoke")
@click.argument("name_or_id", type=NAME)
@account_option
@config_option
@json_option
def revoke(name_or_id: str, account: str | None, file: Path, as_json: bool) -> None:
    """Let a key in no more: the one with this id, or all with this name."""

    def work(session: Session) -> Sequence[StoredKey]:
        found = keys_with_id(session, name_or_id, account) or keys_called(session, name_or_id, account)
        meant = _of_one_account([stored for stored in found if stored.revoked_at is None], name_or_id)
        revoke_keys(session, meant)
        return meant

    with _refusals(as_json), live_store(file) as database:
        revoked = transact(database, work)
    ids = [stored.key_id for stored in revoked]
    owner = revoked[0].key
    if as_json:
        click.echo(json.dumps({"result": "revoked", "account": owner.account, "name": owner.name, "ids": ids}))
    else:
        click.echo(f"the key {owner.name} of {owner.account} is revoked: {', '.join(ids)}")


@keys.command("rotate")
@click.argument("name", type=NAME)
@click.option("--overlap", type=DURATION, required=True, help="How long the old one still works, like 24h; 0s is not.")
@expires_option
@account_option
@config_option
@json_option
@quiet_option
def rotate(
    name: str,
    overlap: float,
    expires: Until | None,
    account: str | None,
    file: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Make another key with the name, account and limits of this one, which ends after the overlap.

    Both count against the same limits. A key that was to expire is followed by one that lives as long as it was to.
    """

    def work(session: Session) -> NewKey:
        now = session.now()
        meant = _of_one_account(working(keys_called(session, name, account), now), name)
        return rotate_key(session, meant, overlap, _expires_at(expires, meant[-1].key.limits.time_zone, now))

    with _refusals(as_json), live_store(file) as database:
        new = transact(database, work)
    _show_new(new, Shown(as_json, quiet))


# --- what cannot be done ----------------------------------------------------------------------------------------


@contextmanager
def _refusals(as_json: bool) -> Iterator[None]:
    """A KeyRefused out of the block ends the command with its sentence, or its word in JSON."""
    try:
        yield
    except KeyRefused as refused:
        if as_json:
            click.echo(json.dumps({"result": refused.word, "message": refused.sentence}))
        else:
            click.echo(refused.sentence, err=True)
        raise click.exceptions.Exit(NOT_DONE) from None


def _require_new_name(config: Config, account: str, name: str) -> None:
    """Two keys of one name and account would share their limits."""
    if any((known.key.account, known.key.name) == (account, name) for known in config.keys):
        raise KeyRefused("exists", f"the configuration has a key {name} of {account}; choose another name")


def _require_models(config: Config, models: Sequence[str]) -> None:
    for model in models:
        if model not in config.models:
            known = list(config.models)
            sentence = f"the configuration has no model {model}; {suggestion(model, known)}"
            raise KeyRefused("model_not_found", sentence)


def _refuse(result: Result, account: str, name: str) -> NewKey:
    if result is Result.EXISTS:
        sentence = f"{account} has a key {name} that works; rotate or revoke it, or choose another name"
        raise KeyRefused(result.value, sentence)
    raise KeyRefused(result.value, REFUSALS[result].format(name=account))


def _of_one_account(found: Sequence[StoredKey], name: str) -> Sequence[StoredKey]:
    """The keys that are meant: some, and all of one account."""
    if not found:
        raise KeyRefused("not_found", f"there is no key {name} that works; `gateway keys list` shows all there are")
    accounts = sorted({stored.key.account for stored in found})
    if len(accounts) > 1:
        sentence = f"several accounts have a key {name}: {', '.join(accounts)}; say which with --account"
        raise KeyRefused("several_found", sentence)
    return found


def _expires_at(expires: Until | None, time_zone: str, now: float) -> float | None:
    if expires is None:
        return None
    at = now + (expires.seconds or 0.0) if expires.at is None else instant_of(expires.at, time_zone)
    if at <= now:
        raise KeyRefused("invalid_expiry", f"{told_time(at, time_zone)} is over; name a time to come")
    return at


# --- showing ----------------------------------------------------------------------------------------------------


def _show_new(new: NewKey, shown: Shown) -> None:
    """A secret goes to stdout and nowhere else."""
    key = new.stored.key
    if shown.as_json:
        row = _row(new.stored, new.stored.created_at)
        click.echo(json.dumps({"result": "created", **row, "secret": new.secret}))
        return
    if not shown.is_quiet:
        expires = told_time(key.expires_at, key.limits.time_zone)
        end = "it does not expire" if expires is None else f"it expires {expires}"
        click.echo(f"the key {key.name} of {key.account} is made ({new.stored.key_id}); {end}")
        click.echo("its secret is shown this once; keep it where secrets are kept:")
    click.echo(new.secret)


def _row(stored: StoredKey, now: float) -> dict[str, Any]:
    """A key for programs; limits that it has not are left out."""
    key, limits = stored.key, stored.key.limits
    given: dict[str, Any] = {
        "models": None if limits.models is None else sorted(limits.models),
        "requests_per_minute": limits.requests_per_minute,
        "spend_per_day": _dollars(limits.spend_per_day_nanodollars),
        "spend_per_month": _dollars(limits.spend_per_month_nanodollars),
        "time_zone": None if limits.time_zone == UTC else limits.time_zone,
        "replay": "never" if key.replay_never else None,
    }
    return {
        "id": stored.key_id,
        "account": key.account,
        "name": key.name,
        "state": stored.state(now),
        "created": told_time(stored.created_at, limits.time_zone),
        "expires": told_time(key.expires_at, limits.time_zone),
        "limits": {name: value for name, value in given.items() if value is not None},
    }


def _dollars(nanodollars: int | None) -> str | None:
    return None if nanodollars is None else dollars(nanodollars)


def _in_words(row: dict[str, Any]) -> dict[str, Any]:
    """The limits on one line."""
    limits = (
        f"{name}={','.join(value) if isinstance(value, list) else value}" for name, value in row["limits"].items()
    )
    return {**row, "limits": " ".join(limits) or None}
