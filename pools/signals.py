"""Signals about pool and node changes, for the layers above.

Sent inside the change's transaction, to whoever may refuse by raising: `acting`, `action` (pool.edit,
node.drain, ...), `obj`, and `before` and `after` as dictionaries of what changed, or None.
"""

from django.dispatch import Signal

changed = Signal()
