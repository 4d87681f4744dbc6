"""Tests for authentication, rate limits and errors on all endpoints."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from projects.models import ApiToken
from projects.services.people import tokens
from tests.api.conftest import Caller
from tests.cast import Cast, training


def test_request_without_a_valid_token_is_rejected(caller: Callable[..., Caller]) -> None:
    for secret in ("", "berth_wrong", "berth_" + "a" * 5000):
        answer = Caller(secret).get("workloads")
        assert answer.status_code == 401
        assert answer["WWW-Authenticate"].startswith("Bearer")
        assert answer.json()["code"] == "unauthenticated"


def test_revoked_token_and_deactivated_user_are_rejected(cast: Cast, dave: Caller, erin: Caller) -> None:
    ApiToken.objects.filter(user=cast.dave.user).get()
    tokens.revoke(actor=cast.dave, token=ApiToken.objects.get(user=cast.dave.user))
    assert dave.get("whoami").status_code == 401
    User.objects.filter(username="erin").update(is_active=False)
    assert erin.get("whoami").status_code == 401


def test_token_is_restricted_to_its_scopes(caller: Callable[..., Caller]) -> None:
    reader, writer = caller("alice", "read"), caller("alice", "write")
    assert reader.get("departments").status_code == 200
    rejected = reader.post("workloads", training(project="vision"))
    assert (rejected.status_code, rejected.json()["allowed"]) == (403, ["write"])
    assert writer.post("workloads", training(project="vision")).status_code == 201
    assert writer.get("departments").status_code == 403
    assert writer.post("departments", {"name": "new"}).json()["allowed"] == ["admin"]


def test_token_cannot_create_a_token_with_more_scopes(caller: Callable[..., Caller]) -> None:
    weak = caller("alice", "write")
    assert weak.post("tokens", {"name": "up", "scopes": ["admin"]}).status_code == 403
    assert weak.post("tokens", {"name": "same", "scopes": ["write"]}).status_code == 201


def test_sign_in_returns_a_working_token(cast: Cast) -> None:
    answer = Caller().post("login", {"username": "dave", "password": "correct horse battery"})
    assert answer.status_code == 200
    user = Caller(answer.json()["token"]).get("whoami").json()
    assert (user["username"], user["scopes"]) == ("dave", ["read", "write", "admin"])
    assert user["roles"] == [{"role": "member", "department": None, "project": "vision"}]
    assert Caller().post("login", {"username": "dave", "password": "wrong"}).status_code == 401


def test_wrong_passwords_are_throttled(cast: Cast, settings: Any) -> None:
    settings.BERTH_RATE_LIMITS = {**settings.BERTH_RATE_LIMITS, "login": 3}
    tries = [Caller().post("login", {"username": "dave", "password": str(n)}) for n in range(5)]
    assert [answer.status_code for answer in tries] == [401, 401, 401, 429, 429]
    assert int(tries[-1]["Retry-After"]) > 0


def test_session_cookie_authenticates_but_writes_require_a_csrf_token(cast: Cast) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(cast.dave.user)
    assert browser.get("/api/v1/whoami").json()["username"] == "dave"
    rejected = browser.post("/api/v1/workloads", training(project="vision"), content_type="application/json")
    assert rejected.status_code == 403
    assert rejected["Content-Type"] == "application/problem+json"


def test_responses_have_rate_limit_headers(dave: Caller, settings: Any) -> None:
    settings.BERTH_RATE_LIMITS = {"read": 2, "write": 1, "login": 1}
    first, second, third = (dave.get("whoami") for _ in range(3))
    assert [answer["RateLimit-Remaining"] for answer in (first, second, third)] == ["1", "0", "0"]
    assert {answer["RateLimit-Limit"] for answer in (first, second, third)} == {"2"}
    assert (third.status_code, third.json()["code"]) == (429, "rate-limited")
    assert 1 <= int(third["Retry-After"]) <= 60
    assert dave.post("workloads", training(project="vision")).status_code == 201


def test_valid_request_id_is_preserved(dave: Caller) -> None:
    named = dave("GET", "whoami", headers={"X-Request-Id": "abc-1"})
    assert named["X-Request-Id"] == "abc-1"
    replaced = dave("GET", "workloads/none", headers={"X-Request-Id": "a b\tc"})
    assert replaced["X-Request-Id"] not in ("", "a b\tc")
    missing = dave.get("departments/none")
    assert missing.json()["request_id"] == missing["X-Request-Id"]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "nothing"), ("GET", "/api/v2/workloads"), ("PUT", "departments")]
)
def test_unknown_path_or_method_returns_a_problem_document(dave: Caller, method: str, path: str) -> None:
    answer = dave(method, path)
    assert answer.status_code == (405 if method == "PUT" else 404)
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["X-Content-Type-Options"] == "nosniff"


def test_response_to_an_unexpected_error_hides_the_error_message(
    dave: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("the secret is swordfish")

    monkeypatch.setattr("projects.selectors.departments", broken)
    answer = dave.get("departments")
    assert (answer.status_code, answer.json()["code"]) == (500, "broken")
    assert b"swordfish" not in answer.content


def test_health_and_readiness_are_reported(db: None) -> None:
    assert Client().get("/healthz").json() == {"status": "ok"}
    assert Client().get("/readyz").json()["checks"] == {"database": True, "migrations": True}
