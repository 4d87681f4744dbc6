"""Models for submitted code. Each row belongs to a single project."""

import uuid

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from projects.models.tenants import Project


class CodeChunk(models.Model):
    """Part of a file, identified by its SHA-256 digest. The row exists only while the content is stored."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+", db_index=False)
    digest = models.CharField(max_length=64)
    size = models.PositiveIntegerField(help_text="In bytes.")
    key = models.UUIDField(default=uuid.uuid4, unique=True, help_text="Name in the store.")
    used_at = models.DateTimeField(
        db_default=Now(), help_text="Time of the last upload that used the chunk, rounded to the hour."
    )

    class Meta:
        constraints = [models.UniqueConstraint(name="code_chunk_once", fields=["project", "digest"])]

    def __str__(self) -> str:
        return self.digest


class CodeTree(models.Model):
    """Files of a submission. Submissions with identical files share one tree per project."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    digest = models.CharField(max_length=64, help_text="Digest of the file list.")
    size = models.PositiveBigIntegerField(help_text="In bytes.")
    file_count = models.PositiveIntegerField()
    files = models.JSONField(help_text="Path, chunks and kind of each file.")
    chunks = ArrayField(models.CharField(max_length=64), help_text="Digests of the chunks in all files.")
    created_at = models.DateTimeField(db_default=Now())
    used_at = models.DateTimeField(
        db_default=Now(), help_text="Time of the last upload or submission, rounded to the hour."
    )

    class Meta:
        constraints = [models.UniqueConstraint(name="code_tree_once", fields=["project", "digest"])]
        indexes = [GinIndex(fields=["chunks"], name="code_tree_chunks")]

    def __str__(self) -> str:
        return self.digest


class CodeFetch(models.Model):
    """Git commit whose files workloads receive. The tasks of an array share one fetch."""

    class State(models.TextChoices):
        WAITING = "waiting"
        FETCHED = "fetched"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    section = models.JSONField(help_text="The document's `code.git` section.")
    state = models.CharField(max_length=8, choices=State.choices, default=State.WAITING)
    commit = models.CharField(max_length=64, blank=True)
    branch = models.CharField(max_length=255, blank=True, help_text="Branch whose head was this commit.")
    tree = models.ForeignKey(CodeTree, null=True, on_delete=models.SET_NULL, related_name="+")
    secret_version = models.PositiveIntegerField(null=True, help_text="Version of the secret that was used.")
    attempts = models.PositiveIntegerField(default=0, help_text="Number of failed attempts.")
    retry_at = models.DateTimeField(null=True)
    error = models.TextField(blank=True, help_text="Error of the last failed attempt.")
    created_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["created_at"], name="code_fetch_waiting", condition=Q(state="waiting"))
        ]

    def __str__(self) -> str:
        return str(self.section.get("url", ""))
