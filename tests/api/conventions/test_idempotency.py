"""Tests for requests with an idempotency key."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import chain, repeat
from threading import Barrier
from typing import Any

import pytest
from django.db import connections
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from berth.server.api import idempotency
from berth.server.api.idempotency import delete_expired_responses
from berth.server.api.models import StoredResponse
from projects.models import ApiToken, Workload
from projects.services.people import tokens
from tests.api.conftest import Caller
from tests.cast import make_cast, training

TRAINING = training(project="vision")


def test_repeated_request_gets_the_first_response(dave: Caller) -> None:
    first = dave.post("workloads", TRAINING, Idempotency_Key="k1")
    second = dave.post("workloads", TRAINING, Idempotency_Key="k1")
    assert (first.status_code, second.status_code) == (201, 201)
    assert (second.json(), second["Location"]) == (first.json(), first["Location"])
    assert (first.get("Idempotency-Replayed"), second["Idempotency-Replayed"]) == (None, "true")
    assert Workload.objects.count() == 1


def test_reusing_an_idempotency_key_for_a_different_request_is_rejected(dave: Caller) -> None:
    dave.post("workloads", TRAINING, Idempotency_Key="k1")
    other = dave.post("workloads", training("other", project="vision"), Idempotency_Key="k1")
    assert (other.status_code, other.json()["errors"][0]["path"]) == (422, "Idempotency-Key")
    assert Workload.objects.count() == 1


def test_two_users_can_use_the_same_idempotency_key(dave: Caller, carol: Caller) -> None:
    assert dave.post("workloads", TRAINING, Idempotency_Key="k1").status_code == 201
    assert (
        carol.post("workloads", training("hers", project="vision"), Idempotency_Key="k1").status_code == 201
    )


@pytest.mark.heavy
def test_rejected_request_can_be_corrected_with_the_same_idempotency_key(dave: Caller) -> None:
    assert (
        dave.post("workloads", training("-bad-", project="vision"), Idempotency_Key="k1").status_code == 422
    )
    assert not StoredResponse.objects.exists()
    assert dave.post("workloads", TRAINING, Idempotency_Key="k1").status_code == 201


@pytest.mark.heavy
def test_idempotency_key_expires_after_a_day(dave: Caller) -> None:
    path = dave.post("workloads", TRAINING, Idempotency_Key="k1")["Location"]
    dave.post(f"{path}/cancel")
    StoredResponse.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert dave.post("workloads", TRAINING, Idempotency_Key="k1")["Location"] != path
    StoredResponse.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert delete_expired_responses() == 1


def test_stored_response_contains_no_secret(dave: Caller) -> None:
    body = {"name": "ci", "scopes": ["read"]}
    first = dave.post("tokens", body, Idempotency_Key="k1").json()
    second = dave.post("tokens", body, Idempotency_Key="k1").json()
    assert first["token"].startswith("berth_")
    assert second == {**first, "token": None}
    assert ApiToken.objects.filter(name="ci").count() == 1
    assert first["token"].encode() not in bytes(StoredResponse.objects.get().body)


@pytest.mark.parametrize("key", ["", "x" * 256, "käse"])
def test_invalid_idempotency_key_is_rejected(dave: Caller, key: str) -> None:
    assert dave.post("workloads", TRAINING, Idempotency_Key=key).status_code == 422


def test_every_post_endpoint_is_idempotent_or_marked_as_repeatable() -> None:
    posts = [
        view.view_class
        for view in _views(get_resolver())
        if hasattr(getattr(view, "view_class", None), "post")
    ]
    ours = [view for view in posts if view.__module__.split(".")[1] == "api"]
    assert len(ours) > 8
    repeatable = {view.__name__ for view in ours if hasattr(view.post, "is_repeatable")}
    assert repeatable == {"CreatePortLink", "DocumentSmallestChange", "PodVolumeUrls"}
    others = [view for view in ours if not hasattr(view.post, "is_repeatable")]
    assert [view.__name__ for view in others if not hasattr(view.post, "is_idempotent")] == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("requests", [2, 6])
def test_concurrent_duplicate_requests_take_effect_once(requests: int) -> None:
    cast = make_cast()
    _, secret = tokens.issue(actor=cast.dave, name="t", scopes=["write"], expires_at=None)
    together = Barrier(requests)

    def submit(_: int) -> Any:
        together.wait(timeout=120)
        try:
            return Caller(secret).post("workloads", TRAINING, Idempotency_Key="k1")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(requests) as threads:
        answers = list(threads.map(submit, range(requests)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum(answer.get("Idempotency-Replayed") is None for answer in answers) == 1
    assert Workload.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("first_has_ended", [False, True])
def test_overlapping_repeated_requests_get_the_same_response(
    monkeypatch: pytest.MonkeyPatch, first_has_ended: bool
) -> None:
    cast = make_cast()
    _, secret = tokens.issue(actor=cast.dave, name="t", scopes=["write"], expires_at=None)
    caller = Caller(secret)
    first = caller.post("workloads", TRAINING, Idempotency_Key="k1")
    if first_has_ended:  # the name is free again, so only the key is in use
        assert caller.post(f"{first['Location']}/cancel").status_code == 200
    # The second request looks for the key before the first one has stored it.
    lookups = chain([lambda used: None], repeat(idempotency._load_unexpired_response))

    def find_response(used: idempotency.UsedKey) -> Any:
        return next(lookups)(used)

    monkeypatch.setattr(idempotency, "_load_unexpired_response", find_response)
    second = caller.post("workloads", TRAINING, Idempotency_Key="k1")
    assert (second.status_code, second.get("Idempotency-Replayed")) == (201, "true")
    assert second.json() == first.json()
    assert Workload.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_submission_with_dependencies_is_stored_once() -> None:
    cast = make_cast()
    _, secret = tokens.issue(actor=cast.dave, name="t", scopes=["write"], expires_at=None)
    caller = Caller(secret)
    assert caller.post("workloads", TRAINING).status_code == 201
    document = training("evaluate", project="vision", after=[{"workload": TRAINING["name"]}])
    first = caller.post("workloads", document, Idempotency_Key="k1")
    second = caller.post("workloads", document, Idempotency_Key="k1")
    assert (first.status_code, second.get("Idempotency-Replayed")) == (201, "true")
    assert second.json() == first.json()
    assert Workload.objects.filter(name="evaluate").count() == 1


def _views(resolver: URLResolver) -> list[Any]:
    views = []
    for entry in resolver.url_patterns:
        if isinstance(entry, URLPattern):
            views.append(entry.callback)
        else:
            views += _views(entry)
    return views
