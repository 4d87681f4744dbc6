"""Tests for a web process's connections to the database."""

from pathlib import Path

import httpx
from django.db import connection

from projects.services.people import tokens
from tests.cast import make_cast
from tests.conftest import env_of_children
from tests.web_process import web_processes

REQUESTS = 5
CLOSE_OTHERS = """
    SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


def test_request_after_the_database_closed_all_connections_succeeds(
    transactional_db: None, postgres: str, tmp_path: Path
) -> None:
    cast = make_cast()
    secret = tokens.issue(actor=cast.dave, name="t", scopes=["read"], expires_at=None)[1]
    headers = {"Authorization": f"Bearer {secret}"}
    with (
        web_processes(env_of_children(postgres), tmp_path) as (address,),
        httpx.Client(base_url=address, headers=headers, timeout=60, trust_env=False) as http,
        connection.cursor() as cursor,
    ):
        for _ in range(REQUESTS):
            assert http.get("/api/v1/whoami").status_code == 200
            cursor.execute(CLOSE_OTHERS)
            assert cursor.fetchone()[0] > 0
        assert http.get("/api/v1/whoami").status_code == 200
