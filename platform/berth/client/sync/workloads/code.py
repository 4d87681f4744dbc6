# Generated from berth/client/aio/workloads/code.py by `python -m berth.client.generate`; do not edit.
"""Upload code for workloads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from berth.client.code import scan
from berth.client.errors import ClientError
from berth.client.models.files import CodeTree, ProjectCode
from berth.client.sync.resource import Resource
from berth.core.frames import CONTENT_TYPE

Progress = Callable[[int, int], None]
ATTEMPTS = 3


class Code(Resource):
    def get(self, project: str) -> ProjectCode:
        """Return the limits and the size of a project's code."""
        return self._get(ProjectCode, f"projects/{quote(project, safe='')}/code")

    def upload(
        self, directory: str | Path, *, project: str = "", progress: Progress | None = None
    ) -> dict[str, Any]:
        """Upload a directory, and return the `code` section for a workload document.

        Files that Git or .berthignore excludes are left out. The project defaults to the project of the
        context, or to your only project. `progress` is called with the number of bytes sent and the total.
        Raises SpecError if the files cannot be sent.
        """
        project = project or self._transport.settings.project or self._only_project()
        limits = self.get(project)
        tree = scan(directory, size_max=limits.size_max, files_max=limits.files_max)
        path = f"projects/{quote(project, safe='')}/code"
        for _ in range(ATTEMPTS):
            stored = self._send(CodeTree, "PUT", f"{path}/tree", body={"files": tree.entries})
            if not stored.missing:
                return tree.section(stored.tree)
            total, sent = sum(tree.chunks[digest].size for digest in stored.missing), 0
            for content, size in tree.uploads(stored.missing):
                if progress is not None:
                    progress(sent, total)
                self._transport.execute(
                    "PUT", f"{path}/chunks", content=content, headers={"Content-Type": CONTENT_TYPE},
                    is_idempotent=True,
                )  # fmt: skip
                sent += size
            if progress is not None:
                progress(sent, total)
        raise ClientError("The server deleted parts of the code before the upload finished. Try again later.")

    def _only_project(self) -> str:
        names = [item["name"] for item in self._transport.iterate_items("projects", limit=2)]
        if len(names) != 1:
            raise ClientError("Specify the project whose pods use the code.")
        return str(names[0])
