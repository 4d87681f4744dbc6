"""Typed objects that the server returns."""
