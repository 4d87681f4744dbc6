"""Database model of this installation's name."""

from django.db import models


class Installation(models.Model):
    """Name of this installation, stored in a single row. A copy of the database must use a different name."""

    name = models.SlugField(max_length=40)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.CheckConstraint(name="installation_is_one", condition=models.Q(pk=1)),
        ]

    def __str__(self) -> str:
        return self.name
