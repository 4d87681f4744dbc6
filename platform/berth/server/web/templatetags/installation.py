"""Template tags about this installation."""

from django import template
from django.conf import settings

register = template.Library()


@register.simple_tag
def contact(default: str) -> str:
    """Return the contact for questions about this installation, such as an email address."""
    return str(settings.BERTH_CONTACT or default)
