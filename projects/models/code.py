"""Models of the code that is sent with workloads. All rows belong to one project."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models.functions import Now

from projects.models.tenants import Project


class CodeChunk(models.Model):
    """Part of a file, identified by its SHA-256 digest. The row exists only while the content is stored."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    digest = models.CharField(max_length=64)
    size = models.PositiveIntegerField(help_text="In bytes.")
    key = models.UUIDField(default=uuid.uuid4, unique=True, help_text="Name in the store.")
    used_at = models.DateTimeField(
        db_default=Now(), help_text="Time of the last upload that needs it, to the hour."
    )

    class Meta:
        constraints = [models.UniqueConstraint(name="code_chunk_once", fields=["project", "digest"])]

    def __str__(self) -> str:
        return self.digest


class CodeTree(models.Model):
    """Files of a submission. Submissions with identical files share one tree per project."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    digest = models.CharField(max_length=64, help_text="Digest of the list of files.")
    size = models.PositiveBigIntegerField(help_text="In bytes.")
    file_count = models.PositiveIntegerField()
    files = models.JSONField(help_text="Path, chunks and kind of each file.")
    chunks = ArrayField(models.CharField(max_length=64), help_text="Digests of the chunks in all files.")
    created_at = models.DateTimeField(db_default=Now())
    used_at = models.DateTimeField(
        db_default=Now(), help_text="Time of the last upload or submission, to the hour."
    )

    class Meta:
        constraints = [models.UniqueConstraint(name="code_tree_once", fields=["project", "digest"])]
        indexes = [GinIndex(fields=["chunks"], name="code_tree_chunks")]

    def __str__(self) -> str:
        return self.digest
