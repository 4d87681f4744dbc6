"""Permission check for the pool endpoints, registered by a setting."""

from projects import access
from projects.acting import Acting


def require(acting: Acting, action: str, obj: object = None) -> None:
    """Raises NotFound or Forbidden; `action` is a word of projects.access.Action."""
    access.require(acting, access.Action(action), obj)
