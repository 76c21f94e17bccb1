"""Runs the steps on the connection that schema.py hands over; there is no command line of Alembic's own."""

from alembic import context

from gateway.store.schema import VERSION_TABLE

if hasattr(context, "config"):  # only while Alembic runs this file
    context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
    context.run_migrations()
