"""Database layer: queries, writes, loops of background processes, and the embedded PostgreSQL."""
