"""Tests that invalid input is rejected and changes nothing."""

from typing import Any

import pytest

from projects.models import Workload
from tests.api.conftest import Caller
from tests.cast import training

NESTED = b'{"name": "deep", "project": "vision", "env": ' + b'{"A":' * 5000 + b"1" + b"}" * 5000 + b"}"
TOO_LARGE = b'{"name": "' + b"x" * 10_000_000 + b'"}'

DOCUMENTS: dict[str, tuple[Any, int, str]] = {
    "NUL in the command": (training(command="echo \0"), 422, "command"),
    "NUL in an argument": (training(command=["echo", "a\0b"]), 422, "command[1]"),
    "NUL in the name": (training(name="a\0b"), 422, "name"),
    "markup in the name": (training(name="<script>alert(1)</script>"), 422, "name"),
    "name too long": (training(name="x" * 64), 422, "name"),
    "min above max": (training(roles=[{"name": "w", "min": 3, "max": 2, "gpu": 1}]), 422, "roles[0].min"),
    "fraction above one device": (training(roles=[{"name": "w", "gpu": 1.5}]), 422, "roles[0].gpu"),
    "negative number of GPUs": (training(roles=[{"name": "w", "gpu": -1}]), 422, "roles[0].gpu"),
    "unknown key": (training(gpus=2), 422, "gpus"),
    "unknown nested key": (training(roles=[{"name": "w", "gpuz": 1}]), 422, "roles[0].gpuz"),
    "text instead of a number": (training(roles=[{"name": "w", "gpu": "two"}]), 422, "roles[0].gpu"),
    "number instead of text": ({**training(), "name": 5}, 422, "name"),
    "boolean instead of a number": (training(priority=True), 422, "priority"),
    "missing pool": (training(pools=["moon"]), 422, "pools[0]"),
    "missing project": (training(project="moon"), 422, "project"),
    "no command": ({"name": "a", "project": "vision", "roles": [{"name": "w"}]}, 422, "command"),
    "list": ([], 422, ""),
    "string": (b'"hello"', 422, ""),
    "null": (None, 422, ""),
}
BODIES: dict[str, tuple[str, bytes, int]] = {
    "NaN": ("application/json", b'{"name": "a", "priority": NaN}', 400),
    "duplicate key": ("application/json", b'{"name": "a", "name": "b"}', 400),
    "truncated document": ("application/json", b'{"name": ', 400),
    "invalid UTF-8": ("application/json", b'{"name": "\xff"}', 400),
    "deep nesting": ("application/json", NESTED, 400),
    "number with 5000 digits": ("application/json", b'{"priority": ' + b"9" * 5000 + b"}", 400),
    "lone surrogate": ("application/json", b'{"name": "a", "command": "\\ud800"}', 422),
    "empty body": ("application/json", b"", 422),
    "10 MB": ("application/json", TOO_LARGE, 413),
    "YAML with references": ("application/yaml", b"a: &x [1]\nb: *x", 400),
    "YAML with a duplicate key": ("application/yaml", b"name: a\nname: b", 400),
    "YAML that constructs objects": ("application/yaml", b"a: !!python/object/apply:os.system [id]", 400),
    "deeply nested YAML": ("application/yaml", b"[" * 100_000, 400),
    "YAML with an invalid time": ("application/yaml", b"a: !!timestamp x", 400),
    "form": ("application/x-www-form-urlencoded", b"name=a", 415),
    "XML": ("application/xml", b"<a/>", 415),
}  # fmt: skip


def test_error_names_the_invalid_document_path(dave: Caller) -> None:
    for case, (document, status, path) in DOCUMENTS.items():
        if isinstance(document, dict):
            document = {"project": "vision", **document}  # noqa: PLW2901
        answer = dave("POST", "workloads", b"null" if document is None else document)
        problem = answer.json()
        assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json"), case
        assert problem["errors"][0]["path"] == path, case
        assert all(fault["message"] for fault in problem["errors"]), case
    assert not Workload.objects.exists()


def test_malformed_body_is_rejected(dave: Caller) -> None:
    for case, (kind, body, status) in BODIES.items():
        answer = dave("POST", "workloads", (kind, body))
        assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json"), case
        assert len(answer.content) < 5000, case
    assert not Workload.objects.exists()


@pytest.mark.parametrize(
    ("path", "query", "named"),
    [
        ("workloads", {"colour": "red"}, "colour"),
        ("workloads", {"limit": "0"}, "limit"),
        ("workloads", {"limit": "501"}, "limit"),
        ("workloads", {"limit": "many"}, "limit"),
        ("workloads", {"limit": ["1", "2"]}, "limit"),
        ("workloads", {"cursor": "!!!"}, "cursor"),
        ("workloads", {"cursor": "W10"}, "cursor"),
        ("workloads", {"sort": "colour"}, "sort"),
        ("workloads", {"phase": "flying"}, "phase[0]"),
        ("workloads", {"label": "team"}, "label[0]"),
        ("events", {"workload": "me"}, "workload"),
        ("events", {"since": "yesterday"}, "since"),
        ("pods", {"state": "happy"}, "state[0]"),
        ("whoami", {"x": "1"}, "x"),
        ("departments/research", {"x": "1"}, "x"),
    ],
)
def test_error_names_the_invalid_query_parameter(
    bob: Caller, path: str, query: dict[str, Any], named: str
) -> None:
    answer = bob.get(path, **query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == named


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("departments", {"name": "<b>x</b>"}, "name"),
        ("departments", {"name": "ok", "rank": 10**30}, "rank"),
        ("departments", {"name": "ok", "rank": 1.5}, "rank"),
        ("departments", {"name": "ok", "title": "a\0b"}, "title"),
        ("departments", {"name": "ok", "colour": 1}, "colour"),
        ("departments", {}, "name"),
        ("departments", {"name": "ok", "reclaim_min_runtime": -1}, "reclaim_min_runtime"),
        ("projects", {"name": "ok"}, "department"),
        ("members", {"user": "frank", "role": "king"}, "role"),
        ("members", {"user": "frank", "role": "member"}, "role"),
        ("members", {"user": "nobody", "role": "member", "project": "vision"}, "user"),
        (
            "members",
            {"user": "frank", "role": "member", "project": "vision", "department": "research"},
            "department",
        ),
        ("users", {"username": "a b"}, "username"),
        ("users", {"username": "new", "password": "short"}, "password"),
        ("tokens", {"name": "t", "scopes": ["root"]}, "scopes[0]"),
        ("tokens", {"name": "t", "scopes": []}, "scopes"),
        ("tokens", {"name": "t", "expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
    ],
)
def test_error_names_the_invalid_field(alice: Caller, path: str, body: dict[str, Any], named: str) -> None:
    answer = alice.post(path, body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == named


def test_nul_byte_in_the_url_is_rejected(bob: Caller) -> None:
    assert bob("GET", "/api/v1/departments/a%00b").status_code == 400
    assert bob("GET", "/api/v1/workloads?search=%00").status_code == 400
