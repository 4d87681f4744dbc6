"""Model of saved list views."""

from django.conf import settings
from django.db import models
from django.db.models.functions import Now


class SavedView(models.Model):
    """Filters, columns and order of the list of workloads under a name of one's own."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=60)
    query = models.TextField(help_text="What stands after the question mark of the page's address.")
    saved_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(name="view_name_once_per_person", fields=["user", "name"])]

    def __str__(self) -> str:
        return self.name
