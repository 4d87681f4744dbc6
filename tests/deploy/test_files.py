"""Tests that the files in deploy/ match Berth and that systemd and nginx accept them."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import ROOT

SYSTEMD, NGINX = ROOT / "deploy" / "systemd", ROOT / "deploy" / "nginx"
UNITS = sorted(path for path in SYSTEMD.iterdir() if path.suffix in (".service", ".target", ".timer"))
PYTHON = "/opt/berth/venv/bin/python -m "


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_every_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for file in UNITS:
        text = file.read_text().replace("/opt/berth/venv/bin/python", shutil.which("true") or "/bin/true")
        (tmp_path / file.name).write_text(text.replace("/opt/berth/venv/bin/berth", "/bin/true"))
    named = tmp_path / unit.name.replace("@.", "@8001.")
    if not named.exists():
        named.write_text((tmp_path / unit.name).read_text())
    done = subprocess.run(
        ["systemd-analyze", "verify", str(named)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line or unit.name in line]
    assert ours == [], "\n".join(ours)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_every_command_in_the_systemd_units_exists(unit: Path) -> None:
    text = unit.read_text()
    for command in re.findall(rf"^ExecStart={re.escape(PYTHON)}(.*)$", text, flags=re.MULTILINE):
        module, *words = command.split()
        assert find_spec(module) is not None, module
        if module == "django":
            from django.core.management import get_commands

            assert words[0] in get_commands()
    named = re.findall(r"berth[\w-]*(?:@(?:8\d+)?)?\.(?:service|target|timer)", text)
    unit_names = {file.name for file in UNITS}
    assert {re.sub(r"@\d+", "@", name) for name in named} <= unit_names
    if unit.suffix == ".service":
        assert "User=berth" in text
        assert "EnvironmentFile=/etc/berth/berth.env" in text


def test_every_example_variable_is_documented() -> None:
    names = re.findall(r"^#?([A-Z_]+)=", (SYSTEMD / "berth.env.example").read_text(), flags=re.MULTILINE)
    guide = (ROOT / "docs" / "operations.md").read_text()
    assert len(names) > 10
    assert [name for name in names if f"`{name}`" not in guide and name != "DJANGO_SETTINGS_MODULE"] == []


def test_systemd_restart_of_the_scheduler_does_not_kill_pods() -> None:
    assert "KillMode=process" in (SYSTEMD / "berth-scheduler.service").read_text()


def test_nginx_accepts_both_configuration_files(tmp_path: Path) -> None:
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        pytest.skip("nginx is not installed")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=berth",
            "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "certificate"),
        ],
        capture_output=True, check=True,
    )  # fmt: skip
    for file in NGINX.glob("*.conf"):
        text = re.sub(r"/etc/ssl/[\w-]+/fullchain.pem", str(tmp_path / "certificate"), file.read_text())
        (tmp_path / file.name).write_text(re.sub(r"/etc/ssl/[\w-]+/privkey.pem", str(tmp_path / "key"), text))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {tmp_path}/{kind}; " for kind in kinds)
    (tmp_path / "nginx").write_text(
        f"pid {tmp_path}/pid; events {{}} http {{ access_log off; {paths} include {tmp_path}/*.conf; }}\n"
    )
    done = subprocess.run(
        [nginx, "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx"), "-e", "stderr"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.heavy
def test_health_probes_are_not_redirected_to_https(tmp_path: Path) -> None:
    code = (
        "import django; django.setup(); from django.test import Client; client = Client();"
        "print(*(client.get(path, SERVER_NAME='localhost').status_code for path in ('/healthz', '/login')))"
    )
    env = {
        **os.environ, "BERTH_HTTPS": "1", "BERTH_HOME": str(tmp_path), "BERTH_LOG_LEVEL": "CRITICAL",
        "DJANGO_SETTINGS_MODULE": "berth.server.settings",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}",
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "200 301\n"
