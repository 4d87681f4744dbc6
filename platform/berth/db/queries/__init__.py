"""Queries that run faster than in Django, and filters that reject unknown names."""
