"""Links between the pages of the admin site."""

from django.db.models import Model
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString


def link_to(model: type[Model], key: object, text: str) -> SafeString | str:
    """Return a link to an object's page, or only the text if the object has been deleted."""
    if not text or key is None or not model._default_manager.filter(pk=key).exists():
        return text or "none"
    return link_to_existing(model, key, text)


def link_to_existing(model: type[Model], key: object, text: str) -> SafeString:
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_change", args=[key])
    return format_html('<a href="{}">{}</a>', address, text)
