"""Typed models of the objects that the server returns."""
