"""Template tags about this installation."""

from django import template
from django.conf import settings

from projects.missing_roles import names_of_platform_admins

register = template.Library()


@register.simple_tag
def contact(default: str) -> str:
    """Return the contact for questions about this installation, such as an email address."""
    return str(settings.BERTH_CONTACT or default)


@register.simple_tag
def role_granters() -> str:
    """Return the platform admins, such as "alice or bob", who can grant any role."""
    return names_of_platform_admins() or "a platform admin"
