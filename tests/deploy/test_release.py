"""Tests for the release script: files, checksums, bill of materials and rejected input."""

import hashlib
import json
import re
import subprocess
import sys
import tarfile
import uuid
import zipfile
from datetime import datetime
from pathlib import Path

import pytest

from deploy.release import ReleaseError, build_sbom, check_changelog, check_versions, read_project
from tests.conftest import ROOT

PROJECT, SERVER = read_project(ROOT), read_project(ROOT / "deploy" / "server")
WHEELS = ("berth_platform", "berth_platform_server")
LOCK = """\
annotated-doc==0.0.7 \\
    --hash=sha256:{a} \\
    --hash=sha256:{b}
psycopg[binary]==3.3.9 \\
    --hash=sha256:{c}
""".format(a="a" * 64, b="b" * 64, c="c" * 64)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a draft release of this checkout without network access, and return its folder."""
    out = tmp_path_factory.mktemp("release") / "dist"
    command = [sys.executable, str(ROOT / "deploy" / "release.py"), "--draft", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(str(file) for file in out.iterdir())
    return out


@pytest.mark.heavy
def test_checksums_cover_all_other_release_files(dist: Path) -> None:
    lines = (dist / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    names = {file.name for file in dist.iterdir()} - {"SHA256SUMS"}
    assert sums == {name: hashlib.sha256((dist / name).read_bytes()).hexdigest() for name in names}
    prefix = f"berth_platform-{PROJECT['version']}"
    server = f"berth_platform_server-{PROJECT['version']}-py3-none-any.whl"
    assert names == {f"{prefix}.tar.gz", f"{prefix}-py3-none-any.whl", server, f"{prefix}.cdx.json"}


def list_wheel(file: Path) -> set[str]:
    with zipfile.ZipFile(file) as wheel:
        return {name for name in wheel.namelist() if ".dist-info/" not in name}


def test_wheels_share_no_file_and_together_contain_every_tracked_file(dist: Path) -> None:
    client, server = (list_wheel(next(dist.glob(f"{name}-*.whl"))) for name in WHEELS)
    folders = ("platform", "pools", "projects", "scheduler", "templates")
    command = ["git", "ls-files", "-co", "--exclude-standard", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    names = [name.removeprefix("platform/") for name in listed if (ROOT / name).is_file()]
    assert client | server == {re.sub("^templates/", "berth/templates/", name) for name in names}
    assert client & server == set()
    assert {"berth/cli/main.py", "scheduler/simulator/simulation.py"} <= client
    assert {"berth/server/asgi.py", "berth/templates/base.html", "projects/__init__.py"} <= server


def test_source_archive_contains_the_build_files_of_both_wheels(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as source:
        folder = f"berth_platform-{PROJECT['version']}"
        inside = {name.removeprefix(f"{folder}/") for name in source.getnames()}
    assert {
        "Makefile",
        "requirements/base.txt",
        "deploy/release.py",
        "deploy/server/hatch_build.py",
        "deploy/server/pyproject.toml",
        "deploy/container/Containerfile",
    } <= inside


def test_bill_of_materials_lists_every_locked_package(dist: Path) -> None:
    bill = json.loads(next(dist.glob("*.cdx.json")).read_text())
    lock = (ROOT / "requirements" / "base.txt").read_text()
    pinned = {line.split()[0] for line in lock.splitlines() if "==" in line}
    listed = {f"{part['name']}=={part['version']}" for part in bill["components"]}
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert listed == {*pinned, f"{SERVER['name']}=={SERVER['version']}"}
    assert len(bill["components"]) == len(pinned) + 1 > 50
    for part in bill["components"]:
        assert part["purl"] == f"pkg:pypi/{part['name']}@{part['version']}"
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", part["name"])
    for part in bill["components"][1:]:
        hashes = [entry["content"] for entry in part["externalReferences"][0]["hashes"]]
        assert hashes and all(re.fullmatch(r"[0-9a-f]{64}", content) for content in hashes)


def test_bill_of_materials_describes_the_release(dist: Path) -> None:
    bill = json.loads(next(dist.glob("*.cdx.json")).read_text())
    root = bill["metadata"]["component"]
    assert (root["name"], root["version"]) == (PROJECT["name"], PROJECT["version"])
    assert root["licenses"] == [{"license": {"id": PROJECT["license"]}}]
    assert bill["serialNumber"] == f"urn:uuid:{uuid.UUID(bill['serialNumber'].removeprefix('urn:uuid:'))}"
    assert datetime.fromisoformat(bill["metadata"]["timestamp"]).tzinfo is not None


def test_bill_of_materials_has_unique_references_and_the_direct_dependencies(dist: Path) -> None:
    bill = json.loads(next(dist.glob("*.cdx.json")).read_text())
    references = [
        bill["metadata"]["component"]["bom-ref"],
        *(component["bom-ref"] for component in bill["components"]),
    ]
    assert len(set(references)) == len(references)
    client, server = bill["dependencies"]
    assert [client["ref"], server["ref"]] == references[:2]
    assert set(client["dependsOn"]) < set(references[1:])
    assert set(server["dependsOn"]) < {references[0], *references[2:]}
    of_client, of_server = (
        {reference.partition("==")[0] for reference in part["dependsOn"]} for part in (client, server)
    )
    assert {"berth-platform-server", "httpx", "typer", "boto3"} <= of_client
    assert {"berth-platform", "django", "psycopg", "drf-spectacular"} <= of_server
    assert "sqlparse" not in of_client | of_server


def test_bill_of_materials_contains_no_urls(dist: Path) -> None:
    text = next(dist.glob("*.cdx.json")).read_text()
    assert "://" not in text


def test_bill_of_materials_lists_a_hash_for_each_package_file() -> None:
    _, first, second = build_sbom(PROJECT, SERVER, LOCK, 0)["components"]
    assert first["purl"] == "pkg:pypi/annotated-doc@0.0.7"
    assert [entry["content"][0] for entry in first["externalReferences"][0]["hashes"]] == ["a", "b"]
    assert second["purl"] == "pkg:pypi/psycopg@3.3.9"


def test_requirement_without_a_hash_is_rejected() -> None:
    with pytest.raises(ReleaseError, match="no hash for django"):
        build_sbom(PROJECT, SERVER, "django==5.2.1\n", 0)


def test_unpinned_requirement_is_rejected() -> None:
    with pytest.raises(ReleaseError, match="make lock"):
        build_sbom(PROJECT, SERVER, "django>=5\n", 0)


def test_client_and_server_must_have_the_same_version() -> None:
    check_versions(PROJECT, SERVER)
    for key, value in (("version", "9.9.9"), ("dependencies", ["berth-platform==9.9.9"])):
        with pytest.raises(ReleaseError, match=r"deploy/server/pyproject\.toml"):
            check_versions(PROJECT, {**SERVER, key: value})
    with pytest.raises(ReleaseError, match="Set the same version in"):
        check_versions({**PROJECT, "version": "9.9.9"}, SERVER)


def test_changelog_must_begin_with_a_dated_version() -> None:
    check_changelog("# Changelog\n\n## 1.2.0 (2026-11-22)\n\n## 1.1.0 (2026-10-01)\n", "1.2.0")
    with pytest.raises(ReleaseError, match="no date"):
        check_changelog("## 1.2.0 (unreleased)\n", "1.2.0")
    with pytest.raises(ReleaseError, match=r"CHANGELOG\.md has version 1\.1\.0\."):
        check_changelog("## 1.1.0 (2026-10-01)\n", "1.2.0")
    with pytest.raises(ReleaseError, match=r"no heading with a version and a date\. Add `## 1\.2\.0 "):
        check_changelog("# Changelog\n", "1.2.0")


def test_nonempty_folder_is_rejected(dist: Path) -> None:
    command = [sys.executable, str(ROOT / "deploy" / "release.py"), "--draft", "--out", str(dist)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is not empty" in done.stderr
