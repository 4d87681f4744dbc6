"""Write services of Python sessions, their calls and their workers."""

from projects.services.sessions.lifecycle import Wanted, end_by_fault, end_session, open_session, session_of

__all__ = ["Wanted", "end_by_fault", "end_session", "open_session", "session_of"]
