"""Background turns (B9): which upstream has their response, and by which price they began. Of those that are open as it
runs neither is known: they are charged, and asked after, by their route's name, as before."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

PRICES = ("input_price", "cached_input_price", "output_price", "reasoning_price")


def upgrade() -> None:
    """Nano-dollars per million tokens; digests."""
    for name in PRICES:
        op.add_column("background", sa.Column(name, sa.BigInteger))
    for name in ("upstream_place", "upstream_access"):
        op.add_column("background", sa.Column(name, sa.Text))
