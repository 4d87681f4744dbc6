"""Serve the documentation site, which `make run` or `make docs` builds."""

from pathlib import Path

from django.conf import settings
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils._os import safe_join
from django.views.decorators.http import require_safe
from django.views.static import serve


@require_safe
def documentation(request: HttpRequest, path: str | None = None) -> HttpResponseBase:
    """Return a file of the public documentation site, or instructions for building the site."""
    folder: Path = settings.BERTH_DOCS
    if not (folder / "index.html").is_file():
        return render(request, "web/docs_missing.html", status=404)
    if path is None or (not path.endswith("/") and path and Path(safe_join(folder, path)).is_dir()):
        return HttpResponseRedirect(f"{request.path}/")
    file = path if path and not path.endswith("/") else f"{path}index.html"
    response = serve(request, file, document_root=str(folder))
    response["Cache-Control"] = "no-cache"  # browsers revalidate files by Last-Modified
    return response
