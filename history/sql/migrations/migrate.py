"""Bringing the tables of a history to this version.

One rule: all in one transaction, which holds the lock of writers. Two processes that migrate at once wait for each
other, and one that is killed has changed nothing.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config

from history.sql import schema
from history.sql.database import Database


def migrate(url: str) -> str:
    """Make or change the tables of a database, and return what was done as a sentence.

    Raise BadDatabase, NotReachable, or WrongSchema if the tables are of another program or of a version that is too
    new.
    """
    database = Database(url)
    try:
        with database.writing() as connection:
            before = schema.found(connection, database.name)
            if before >= schema.SCHEMA:
                schema.check_newer(connection, database.name, before)
                return f"{database.name} has tables of the version {before} already; nothing to do"
            config = Config(attributes={"connection": connection})
            config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
            command.upgrade(config, "head")
        made = f"from {before} " if before else ""
        return f"{database.name} has tables of the version {schema.SCHEMA} now; migrated {made}".strip()
    finally:
        database.close()
