"""Origins (O1, O3): which upstream made it, so that the route's name may come to stand for another (C2). Of what was
learned before that is not known, and it is found by the route's name, as before."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A digest (core.background.Fingerprint)."""
    for table in ("origin", "origin_mark"):
        op.add_column(table, sa.Column("upstream_place", sa.Text))
