"""Requests repeated with one idempotency key take effect once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connections
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from berth.server.api.idempotency import delete_expired_responses
from berth.server.api.models import StoredResponse
from projects.models import ApiToken, Workload
from projects.services.people import tokens
from tests.api.conftest import Caller
from tests.cast import make_cast, training

TRAINING = training(project="vision")


def test_the_second_request_gets_the_first_ones_answer(dave: Caller) -> None:
    first = dave.post("workloads", TRAINING, Idempotency_Key="k1")
    second = dave.post("workloads", TRAINING, Idempotency_Key="k1")
    assert (first.status_code, second.status_code) == (201, 201)
    assert (second.json(), second["Location"]) == (first.json(), first["Location"])
    assert (first.get("Idempotency-Replayed"), second["Idempotency-Replayed"]) == (None, "true")
    assert Workload.objects.count() == 1


def test_a_key_belongs_to_one_request(dave: Caller) -> None:
    dave.post("workloads", TRAINING, Idempotency_Key="k1")
    other = dave.post("workloads", training("other", project="vision"), Idempotency_Key="k1")
    assert (other.status_code, other.json()["errors"][0]["path"]) == (422, "Idempotency-Key")
    assert Workload.objects.count() == 1


def test_a_key_belongs_to_one_person(dave: Caller, carol: Caller) -> None:
    assert dave.post("workloads", TRAINING, Idempotency_Key="k1").status_code == 201
    assert (
        carol.post("workloads", training("hers", project="vision"), Idempotency_Key="k1").status_code == 201
    )


def test_a_refused_request_may_be_mended_under_its_key(dave: Caller) -> None:
    assert (
        dave.post("workloads", training("-bad-", project="vision"), Idempotency_Key="k1").status_code == 422
    )
    assert not StoredResponse.objects.exists()
    assert dave.post("workloads", TRAINING, Idempotency_Key="k1").status_code == 201


def test_a_key_is_free_again_after_a_day(dave: Caller) -> None:
    path = dave.post("workloads", TRAINING, Idempotency_Key="k1")["Location"]
    dave.post(f"{path}/cancel")
    StoredResponse.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert dave.post("workloads", TRAINING, Idempotency_Key="k1")["Location"] != path
    StoredResponse.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert delete_expired_responses() == 1


def test_a_secret_is_not_kept(dave: Caller) -> None:
    body = {"name": "ci", "scopes": ["read"]}
    first = dave.post("tokens", body, Idempotency_Key="k1").json()
    second = dave.post("tokens", body, Idempotency_Key="k1").json()
    assert first["token"].startswith("berth_")
    assert second == {**first, "token": None}
    assert ApiToken.objects.filter(name="ci").count() == 1
    assert first["token"].encode() not in bytes(StoredResponse.objects.get().body)


@pytest.mark.parametrize("key", ["", "x" * 256, "käse"])
def test_a_strange_key_is_refused(dave: Caller, key: str) -> None:
    assert dave.post("workloads", TRAINING, Idempotency_Key=key).status_code == 422


def test_every_post_keeps_its_answer() -> None:
    posts = [
        view.view_class
        for view in _views(get_resolver())
        if hasattr(getattr(view, "view_class", None), "post")
    ]
    ours = [view for view in posts if view.__module__.split(".")[1] == "api"]
    assert len(ours) > 8
    assert [view.__name__ for view in ours if hasattr(view.post, "is_repeatable")] == ["LinkToPort"]
    kept = [view for view in ours if not hasattr(view.post, "is_repeatable")]
    assert [view.__name__ for view in kept if not hasattr(view.post, "is_idempotent")] == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("people", [2, 6])
def test_requests_at_the_same_moment_are_done_once(people: int) -> None:
    cast = make_cast()
    _, secret = tokens.issue(acting=cast.dave, name="t", scopes=["write"], expires_at=None)
    together = Barrier(people)

    def submit(_: int) -> Any:
        together.wait(timeout=10)
        try:
            return Caller(secret).post("workloads", TRAINING, Idempotency_Key="k1")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(people) as threads:
        answers = list(threads.map(submit, range(people)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum(answer.get("Idempotency-Replayed") is None for answer in answers) == 1
    assert Workload.objects.count() == 1


def _views(resolver: URLResolver) -> list[Any]:
    found = []
    for entry in resolver.url_patterns:
        if isinstance(entry, URLPattern):
            found.append(entry.callback)
        else:
            found += _views(entry)
    return found
