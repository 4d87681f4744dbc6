"""Queries that run faster than Django's, and filters that reject unknown names."""
