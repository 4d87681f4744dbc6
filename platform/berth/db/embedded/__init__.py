"""Embedded PostgreSQL for installations without a database server."""
