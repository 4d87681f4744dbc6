"""Tests for tenant isolation by endpoint and role."""

import re
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import pytest
from django.db import transaction
from django.urls import URLPattern, URLResolver, get_resolver

from tests.api.conftest import V1
from tests.api.isolation_matrix import MATRIX, USERS
from tests.api.one_of_each import Scene

# Lists of tenants' objects, and the rows that each user sees, in the order of USERS
VISIBLE: list[tuple[str, str, Callable[[Any], str], tuple[str, ...]]] = [
    (
        "departments", "names", lambda item: item["name"],
        ("empty product research", "research", "research", "research", "research", "product", ""),
    ),
    (
        "projects", "names", lambda item: item["name"],
        ("ads search speech vision", "speech vision", "vision", "vision", "vision", "ads", ""),
    ),
    (
        "quotas", "owners", lambda item: item["owner"]["name"],
        ("research vision", "research vision", "vision", "vision", "vision", "", ""),
    ),
    (
        "budgets", "owners", lambda item: item["owner"]["name"],
        ("research vision", "research vision", "vision", "vision", "vision", "", ""),
    ),
    (
        "quotas/changes", "owners", lambda item: " ".join(quota["name"] for quota in item["quotas"]),
        ("vision", "vision", "vision", "vision", "vision", "", ""),
    ),
    (
        "schedules", "names", lambda item: item["name"],
        ("carols others weekly", *("carols weekly",) * 4, "others", ""),
    ),
    (
        "templates", "names", lambda item: item["name"],
        ("carols nightly theirs", *("carols nightly",) * 4, "theirs", ""),
    ),
    (
        "workloads", "names", lambda item: item["name"],
        (
            "carols chat ended notebook others scan-0 sweep-0 train",
            *("carols chat ended notebook sweep-0 train",) * 4,
            "others scan-0",
            "",
        ),
    ),
    (
        "events", "subjects", lambda item: item["subject"],
        (
            "carols chat ended notebook others scan-0 sweep-0 train",
            *("carols chat ended notebook sweep-0 train",) * 4,
            "others scan-0",
            "",
        ),
    ),
    ("arrays", "names", lambda item: item["name"], ("scan sweep", *("sweep",) * 4, "scan", "")),
    ("node-pools", "names", lambda item: item["name"], (*("local metal unused",) * 6, "")),
    ("nodes", "names", lambda item: item["name"], (*("local-0",) * 6, "")),
    ("utilization/nodes", "names", lambda item: item["node"], (*("local-0",) * 6, "")),
    (
        "tokens", "names", lambda item: item["name"],
        ("test admin read write",) * 3 + ("secret test admin read write",) + ("test admin read write",) * 3,
    ),
]  # fmt: skip


Case = tuple[str, str, Any, Any, str]


@pytest.mark.every_case
@pytest.mark.parametrize("case", MATRIX, ids=lambda case: f"{case[0]} {case[1]}")
def test_endpoint_returns_the_expected_status_on_both_sides_of_each_permission_boundary(
    scene: Scene, db: None, case: Case
) -> None:
    # `make test-heavy` also calls the endpoint as the users between two users with the same status.
    expected = case[4].split()
    neighbors = zip([None, *expected], expected, [*expected[1:], None], strict=False)
    boundaries = [len(set(near)) > 1 for near in neighbors]
    assert_statuses(scene, case, list(compress(USERS, boundaries)))


@pytest.mark.heavy
def test_every_endpoint_returns_the_expected_status_for_each_role(scene: Scene, db: None) -> None:
    for case in MATRIX:
        assert_statuses(scene, case, USERS)


def assert_statuses(scene: Scene, case: Case, users: Sequence[str]) -> None:
    method, path, body, headers, answers = case
    expected = dict(zip(USERS, answers.split(), strict=True))
    statuses = {}
    for name in users:
        with transaction.atomic():
            answer = scene.callers[name](method, path.format(**scene.named), body, headers=headers)
            transaction.set_rollback(True)  # undo the request for the next user
        statuses[name] = str(answer.status_code)
    assert statuses == {name: expected[name] for name in users}, f"{method} {path}"


@pytest.mark.every_case
@pytest.mark.parametrize(("path", "_what", "name_of", "expected"), VISIBLE, ids=[case[0] for case in VISIBLE])
def test_lists_contain_only_objects_visible_to_the_user(
    scene: Scene,
    db: None,
    path: str,
    _what: str,
    name_of: Any,
    expected: Any,
) -> None:
    for user, names in zip(USERS, expected, strict=False):
        items = scene.callers[user].get(path).json()["items"]
        assert " ".join(sorted({name_of(item) for item in items})) == names, user


def test_isolation_matrix_covers_every_endpoint() -> None:
    names = r"\{\w+\}|research|speech|vision|local-0|local|metal|box-1|empty|unused|chat|none|nightly|carols"
    names += r"|weekly|pair|dave|(?<=ports/)lab|(?<=secrets/)token"
    listed = {(method, re.sub(names, "<>", path.partition("?")[0])) for method, path, *_ in MATRIX}
    machines = {("POST", "node-pools/<>/join"), ("POST", "machines/call"), ("POST", "machines/leave")}
    workers = {("POST", f"workers/{what}") for what in ("hello", "results", "leave")}
    workers |= {("GET", "workers/orders")}  # test_sessions covers their authorization
    workers |= {("GET", "pods/<>/code")}  # test_code covers the authorization of this endpoint
    of_volumes = "pods/<>/volumes/<>"  # test_volumes_in_s3 covers their authorization
    workers |= {("GET", f"{of_volumes}/objects"), ("POST", f"{of_volumes}/urls")}
    public = {("POST", "login"), ("GET", "schema"), ("GET", "docs")} | machines | workers
    assert _endpoints() - listed - public == set()


def _endpoints() -> set[tuple[str, str]]:
    endpoints = set()
    for path, view in _addresses(get_resolver(), ""):
        if path.startswith(V1[1:]) and hasattr(view, "view_class"):
            address = re.sub(r"<[^>]*>", "<>", path.removeprefix(V1[1:]))
            methods = [
                name for name in ("get", "post", "put", "patch", "delete") if hasattr(view.view_class, name)
            ]
            endpoints |= {(method.upper(), address) for method in methods}
    return endpoints


def _addresses(resolver: URLResolver, before: str) -> list[tuple[str, Any]]:
    addresses: list[tuple[str, Any]] = []
    for entry in resolver.url_patterns:
        path = before + str(entry.pattern)
        addresses += [(path, entry.callback)] if isinstance(entry, URLPattern) else _addresses(entry, path)
    return addresses
