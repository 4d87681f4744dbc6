"""Write operations on Python sessions, their calls and their workers."""

from projects.services.sessions.lifecycle import (
    SessionSettings,
    end_session,
    fail_session,
    get_session,
    open_session,
)

__all__ = ["SessionSettings", "end_session", "fail_session", "get_session", "open_session"]
