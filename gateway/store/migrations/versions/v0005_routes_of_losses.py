"""The routes of what the house has lost, for entries that outlive the records of their turns (B2, B7)."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of turns whose records are gone already the routes are not known."""
    op.create_table(
        "loss_route",
        sa.Column("turn_id", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("route", sa.Text, nullable=False),
    )
