"""Signals that tell higher layers about changes to pools and nodes.

They are sent inside the change's transaction, so a receiver can reject the change with an exception. They
carry `actor`, `action` (such as edit or drain), `obj`, and `before` and `after` as dictionaries of changed
values, or None. `proposed` is sent for a preview of a change.
"""

from django.dispatch import Signal

changed = Signal()
proposed = Signal()
