"""Migrations, the tables that the models expect, and the supported versions of PostgreSQL."""
