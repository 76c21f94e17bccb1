"""Books (B), records (L), origins (O1) and keys (B6).

Amounts are nano-dollars, times seconds since the epoch, flags and windows words with spaces between. Truth is 0 or 1,
so that both databases hold the same.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

AMOUNT = sa.BigInteger
TIME = sa.Double
ENTRY_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """From nothing."""
    _books()
    _records()
    _keys()
    _append_only()


def _books() -> None:
    op.create_table(
        "account",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("balance", AMOUNT, nullable=False),
        sa.Column("open", AMOUNT, nullable=False),
        sa.Column("is_unlimited", sa.SmallInteger, nullable=False),
        sa.Column("is_closed", sa.SmallInteger, nullable=False),
        sa.Column("opened_at", TIME, nullable=False),
    )
    op.create_table(
        "reservation",
        sa.Column("turn_id", sa.Text, primary_key=True),
        sa.Column("account", sa.Text, sa.ForeignKey("account.name"), nullable=False),
        sa.Column("nanodollars", AMOUNT, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("resolved_nanodollars", AMOUNT),
        sa.Column("flags", sa.Text, nullable=False),
        sa.Column("windows", sa.Text, nullable=False),
        sa.Column("lease_ends_at", TIME, nullable=False),
        sa.Column("reserved_at", TIME, nullable=False),
    )
    is_open = sa.text("state = 'reserved'")
    op.create_index("open_leases", "reservation", ["lease_ends_at"], sqlite_where=is_open, postgresql_where=is_open)
    op.create_index("reservations_by_age", "reservation", ["reserved_at"])
    op.create_table(
        "entry",
        sa.Column("id", ENTRY_ID, primary_key=True, autoincrement=True),
        sa.Column("at", TIME, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("turn_id", sa.Text),
        sa.Column("attempt", sa.Integer),
        sa.Column("nanodollars", AMOUNT, nullable=False),
        sa.Column("flags", sa.Text, nullable=False),
        sa.Column("actor", sa.Text),
        sa.Column("reason", sa.Text),
        sa.CheckConstraint("nanodollars >= 0", name="never_negative"),
        sqlite_autoincrement=True,
    )
    op.create_index("entries_of_account", "entry", ["account", "id"])
    op.create_index("entries_of_turn", "entry", ["turn_id"])
    is_house = sa.text("kind = 'house'")
    op.create_index(
        "house_once", "entry", ["turn_id", "attempt"], unique=True, sqlite_where=is_house, postgresql_where=is_house
    )
    op.create_table(
        "spend",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("nanodollars", AMOUNT, nullable=False),
        sa.Column("changed_at", TIME, nullable=False),
    )


def _records() -> None:
    op.create_table(
        "turn",
        sa.Column("turn_id", sa.Text, primary_key=True),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("key", sa.Text),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("door", sa.Text, nullable=False),
        sa.Column("reserved_nanodollars", AMOUNT, nullable=False),
        sa.Column("opened_at", TIME, nullable=False),
        sa.Column("client_retry_count", sa.Text),
        sa.Column("client_address", sa.Text),
        sa.Column("outcome", sa.Text),
        sa.Column("ended_at", TIME),
        sa.Column("seconds", TIME),
        sa.Column("nanodollars", AMOUNT),
        sa.Column("flags", sa.Text),
        sa.Column("routes", sa.Text),
        sa.Column("failure_code", sa.Text),
        sa.Column("failure_kind", sa.Text),
        sa.Column("response_id", sa.Text),
    )
    op.create_index("turns_of_account", "turn", ["account", "opened_at"])
    op.create_index("turns_by_time", "turn", ["opened_at"])
    is_open = sa.text("outcome is null")
    op.create_index("open_turns", "turn", ["turn_id"], sqlite_where=is_open, postgresql_where=is_open)
    op.create_table(
        "attempt",
        sa.Column("turn_id", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("route", sa.Text, nullable=False),
        sa.Column("opened_at", TIME, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("is_replayed", sa.SmallInteger),
        sa.Column("seconds", TIME),
        sa.Column("first_event_seconds", TIME),
        sa.Column("first_output_seconds", TIME),
        sa.Column("response_id", sa.Text),
        sa.Column("input_tokens", AMOUNT),
        sa.Column("cached_tokens", AMOUNT),
        sa.Column("output_tokens", AMOUNT),
        sa.Column("reasoning_tokens", AMOUNT),
        sa.Column("dropped_events", sa.Integer),
        sa.Column("upstream_request_id", sa.Text),
        sa.Column("house_nanodollars", AMOUNT),
    )
    op.create_index("open_attempts", "attempt", ["turn_id"], sqlite_where=is_open, postgresql_where=is_open)
    op.create_table(
        "origin",
        sa.Column("account", sa.Text, primary_key=True),
        sa.Column("response_id", sa.Text, primary_key=True),
        sa.Column("route", sa.Text, nullable=False),
        sa.Column("learned_at", TIME, nullable=False),
    )
    op.create_index("origins_by_age", "origin", ["learned_at"])


def _keys() -> None:
    op.create_table(
        "api_key",
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False, unique=True),
        sa.Column("account", sa.Text, sa.ForeignKey("account.name"), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME),
        sa.Column("revoked_at", TIME),
        sa.Column("models", sa.Text),
        sa.Column("requests_per_minute", sa.Integer),
        sa.Column("spend_per_day", AMOUNT),
        sa.Column("spend_per_month", AMOUNT),
        sa.Column("time_zone", sa.Text, nullable=False),
        sa.Column("replay_never", sa.SmallInteger, nullable=False),
    )
    op.create_index("keys_by_name", "api_key", ["name"])


def _append_only() -> None:
    """Whatever is written to the entries by anybody, nothing in them changes."""
    if op.get_context().dialect.name == "sqlite":
        for event in ("update", "delete"):
            op.execute(
                f"create trigger entry_no_{event} before {event} on entry"
                " begin select raise(abort, 'entries are append-only'); end"
            )
        return
    op.execute(
        "create function entry_is_append_only() returns trigger language plpgsql as"
        " $$ begin raise exception 'entries are append-only'; end $$"
    )
    op.execute(
        "create trigger entry_append_only before update or delete or truncate on entry"
        " for each statement execute function entry_is_append_only()"
    )
