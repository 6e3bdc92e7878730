"""The registry in a PostgreSQL database."""
