"""Errors that prevent Berth from starting."""


class CannotStart(Exception):
    """The text says what is in the way and what helps; nothing was left running."""
