"""Identity of this installation in a shared cloud account."""

from django.db import models


class Installation(models.Model):
    """Single row with the name of this installation. A copied database needs a different name."""

    name = models.SlugField(max_length=40)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.CheckConstraint(name="installation_is_one", condition=models.Q(pk=1)),
        ]

    def __str__(self) -> str:
        return self.name
