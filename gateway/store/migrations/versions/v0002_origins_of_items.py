"""Which model made a response (M3), and where items, sealed contents and conversations were made (O3)."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Responses that were learned before have no model, and no marks."""
    op.add_column("origin", sa.Column("model", sa.Text))
    op.create_table(
        "origin_mark",
        sa.Column("account", sa.Text, primary_key=True),
        sa.Column("mark", sa.Text, primary_key=True),
        sa.Column("route", sa.Text, nullable=False),
        sa.Column("learned_at", sa.Double, nullable=False),
    )
    op.create_index("marks_by_age", "origin_mark", ["learned_at"])
