"""Signals about pool and node changes, for the layers above.

Signals are sent inside the change's transaction, so that a receiver can reject the change by raising. Signals
carry `actor`, `action` (such as edit or drain), `obj`, and `before` and `after` as dictionaries of changed
values, or None.
"""

from django.dispatch import Signal

changed = Signal()
