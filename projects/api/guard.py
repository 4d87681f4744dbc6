"""Here the doors of the floors below ask who may what; a setting names this module to them."""

from projects import access
from projects.acting import Acting


def require(acting: Acting, action: str, obj: object = None) -> None:
    """Raises NotFound or Forbidden; `action` is a word of projects.access.Action."""
    access.require(acting, access.Action(action), obj)
