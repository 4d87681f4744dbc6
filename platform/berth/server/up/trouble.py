"""Errors that prevent Berth from starting."""


class CannotStart(Exception):
    """Berth cannot start; the message has the cause and a remedy. No process is left running."""
