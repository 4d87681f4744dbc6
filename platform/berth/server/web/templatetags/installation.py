"""Template tags about this installation."""

from django import template
from django.conf import settings

from projects.missing_roles import platform_admin_names

register = template.Library()


@register.simple_tag
def contact(default: str) -> str:
    """Return the contact for questions about this installation, such as an email address."""
    return str(settings.BERTH_CONTACT or default)


@register.simple_tag
def role_granters() -> str:
    """Return the platform admins, such as "alice or bob", who can grant any role."""
    return platform_admin_names() or "a platform admin"
