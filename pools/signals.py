"""Signals that tell higher layers about changes to pools and nodes.

Signals are sent inside the change's transaction, so that a receiver can reject the change by raising an
exception. Signals carry `actor`, `action` (such as edit or drain), `obj`, and `before` and `after` as
dictionaries of changed values, or None. `proposed` is sent for a preview of a change, with `obj`, `before`
and `after`, so that a receiver can reject the preview as it would reject the change.
"""

from django.dispatch import Signal

changed = Signal()
proposed = Signal()
