"""The history in SQLite or PostgreSQL: the one door to SQLAlchemy, Alembic and psycopg.

Here belong tables, the statements over them, and their migrations. What rows mean is decided in `history`.
"""
