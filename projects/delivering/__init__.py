"""Deliver notifications by email, webhook and chat."""
