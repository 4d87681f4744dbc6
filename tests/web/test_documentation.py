"""Tests for the documentation site that Berth serves."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def site(tmp_path: Path, settings: Any) -> Path:
    settings.BERTH_DOCS = tmp_path / "site"
    (tmp_path / "site" / "concepts").mkdir(parents=True)
    (tmp_path / "site" / "index.html").write_text("<h1>Berth</h1>")
    (tmp_path / "site" / "concepts" / "index.html").write_text("<h1>Concepts</h1>")
    (tmp_path / "private.txt").write_text("secret")
    return tmp_path / "site"


@pytest.mark.usefixtures("site")
def test_built_documentation_is_served_without_sign_in(client: Client) -> None:
    assert client.get("/docs").headers["Location"] == "/docs/"
    assert client.get("/docs/concepts").headers["Location"] == "/docs/concepts/"
    response = client.get("/docs/concepts/")
    assert b"".join(response) == b"<h1>Concepts</h1>"
    assert "worker-src 'self'" in response.headers["Content-Security-Policy"]


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    "path", ["/docs/../private.txt", "/docs/%2e%2e/private.txt", "/docs/missing", "/docs//etc/passwd"]
)
def test_files_outside_the_documentation_are_not_served(client: Client, path: str) -> None:
    assert client.get(path).status_code in {400, 404}


def test_page_for_missing_documentation_shows_the_build_command(
    client: Client, tmp_path: Path, settings: Any
) -> None:
    settings.BERTH_DOCS = tmp_path
    response = client.get("/docs/")
    assert response.status_code == 404
    assert "make docs" in response.content.decode()
    assert str(tmp_path) not in response.content.decode()


@pytest.mark.heavy
def test_documentation_builds_without_warnings_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=CHECKOUT, env=environ, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    page = (tmp_path / "tour" / "index.html").read_text()
    loaded = re.findall(r'<(?:link rel="(?:stylesheet|icon)"|script|img)[^>]* (?:href|src)="([^"]+)"', page)
    assert "../berth/css/fonts.css" in loaded
    assert not [url for url in loaded if url.startswith(("http", "//"))]
    steps = (tmp_path / "admins" / "index.html").read_text()
    assert '<ol start="2">' in steps, "steps are numbered on after a code block"
    home = (tmp_path / "index.html").read_text()
    cards = home.partition('<div class="start">')[2].partition("</div>")[0]
    assert cards.count("<strong>") == 6 and 'href="researchers/"' in cards
    assert "Made with" not in home
