"""Delete code that no workload needs anymore, and the outputs of deleted workloads."""

from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from projects.code.base import ChunkStore
from projects.models import CodeChunk, CodeTree, PodOutputs, Workload
from projects.models.workloads import LIVE_PHASES

UNUSED = timedelta(days=1)  # maximum time between an upload and the submission that uses it
BATCH = 1000
# The condition on `tree.chunks` can use the index on that column.
UNUSED_CHUNKS = """
    SELECT chunk.id FROM projects_codechunk chunk
    WHERE chunk.used_at < %s AND NOT EXISTS (
        SELECT FROM projects_codetree tree
        WHERE tree.project_id = chunk.project_id AND tree.chunks @> ARRAY[chunk.digest]
    )
    LIMIT %s
"""


def prune_code_store(store: ChunkStore, now: datetime, *, retention: timedelta) -> int:
    """Delete trees that no workload has needed for `retention`, and chunks that no tree contains.

    Return the number of deleted trees and chunks. The job can be interrupted or run twice.
    """
    count = _delete_trees(now - UNUSED, now - retention)
    count += _delete_chunks(store, now - UNUSED)
    _delete_leftovers(store, now - UNUSED)
    return count


def _delete_trees(unused_since: datetime, ended_before: datetime) -> int:
    needs_code = Q(phase__in=LIVE_PHASES) | Q(ended_at__gte=ended_before)
    unused = CodeTree.objects.filter(
        ~Exists(Workload.objects.filter(needs_code, code=OuterRef("pk"))),
        ~Exists(PodOutputs.objects.filter(tree=OuterRef("pk"))),
        used_at__lt=unused_since,
    )
    count = 0
    for pk in list(unused.values_list("pk", flat=True)):
        with transaction.atomic():
            # A submission updates `used_at` before it uses the tree.
            locked = CodeTree.objects.select_for_update().defer("files", "chunks")
            tree = locked.filter(pk=pk, used_at__lt=unused_since).first()
            if tree is not None and not _is_needed(tree, needs_code):
                tree.delete()
                count += 1
    return count


def _is_needed(tree: CodeTree, needs_code: Q) -> bool:
    workloads = Workload.objects.filter(needs_code, code=tree)
    return workloads.exists() or PodOutputs.objects.filter(tree=tree).exists()


def _delete_chunks(store: ChunkStore, before: datetime) -> int:
    count = 0
    while True:
        with transaction.atomic():
            pks = [row.pk for row in CodeChunk.objects.raw(UNUSED_CHUNKS, [before, BATCH])]
            # An upload updates `used_at` before it relies on the chunk.
            rows = list(CodeChunk.objects.select_for_update().filter(pk__in=pks, used_at__lt=before))
            CodeChunk.objects.filter(pk__in=[row.pk for row in rows]).delete()
        store.delete([f"{row.project_id}/{row.key}" for row in rows])
        count += len(rows)
        if not rows:
            return count


def _delete_leftovers(store: ChunkStore, before: datetime) -> None:
    """Delete partial writes, and stored chunks without a row. Both can remain after a crash."""
    store.delete_partial_writes(before=before)
    keys = store.keys(before=before)
    while batch := {key: _chunk_id(key) for key in islice(keys, BATCH)}:
        names = [name for name in batch.values() if name is not None]
        stored = set(CodeChunk.objects.filter(key__in=names).values_list("key", flat=True))
        store.delete([key for key, name in batch.items() if name is not None and name not in stored])


def _chunk_id(key: str) -> UUID | None:
    """Return the chunk ID at the end of a key, or None if the object is not one of Berth's chunks."""
    try:
        return UUID(key.rpartition("/")[2])
    except ValueError:
        return None
