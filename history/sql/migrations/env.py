"""What Alembic runs to migrate: the connection and its transaction are the caller's."""

from alembic import context

from history.sql.tables import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
context.run_migrations()
