"""Background turns (B9): what their end is charged by. They go with their turns."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There were none before."""
    op.create_table(
        "background",
        sa.Column("turn_id", sa.Text, primary_key=True),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("response_id", sa.Text, nullable=False),
        sa.Column("route", sa.Text, nullable=False),
        sa.Column("reserved_nanodollars", sa.BigInteger, nullable=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("text_bytes", sa.BigInteger, nullable=False),
        sa.Column("began_at", sa.Double, nullable=False),
        sa.Column("due_at", sa.Double, nullable=False),
    )
