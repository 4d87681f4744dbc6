"""Fixtures for backup tests: an empty second database and the `berth admin` command."""

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.harness.prepared import url_of_database
from tests.journeys.installation import PATIENCE

Berth = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def empty_url(postgres: str) -> Iterator[str]:
    name = sql.Identifier(fresh := f"berth_{uuid.uuid4().hex[:12]}")
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
        yield url_of_database(postgres, fresh)
        connection.execute(sql.SQL("DROP DATABASE {}").format(name))


@pytest.fixture
def admin(child_env: dict[str, str], tmp_path: Path) -> Berth:
    def run(*words: str, url: str = "", home: str = "home", **more: str) -> subprocess.CompletedProcess[str]:
        environment = {**child_env, "BERTH_HOME": str(tmp_path / home), **more}
        if url:
            environment["DATABASE_URL"] = url
        done = subprocess.run(
            [sys.executable, "-m", "berth.cli.main", "admin", *words],
            env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


def contents(url: str) -> dict[str, tuple[int, str]]:
    """Return the row count and digest of every table, and the state of every sequence."""
    state: dict[str, tuple[int, str]] = {}
    with psycopg.connect(url) as connection:
        relations = connection.execute(
            "SELECT relname, relkind FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " AND relkind IN ('r', 'S') ORDER BY relname"
        ).fetchall()
        for name, kind in relations:
            query = (
                "SELECT count(*), md5(coalesce(string_agg(t::text, E'\\n' ORDER BY t::text), '')) FROM {} t"
                if kind == "r"
                else "SELECT last_value, is_called::text FROM {}"
            )
            row = connection.execute(sql.SQL(query).format(sql.Identifier(name))).fetchone()
            assert row is not None
            state[name] = (row[0], row[1])
    return state
