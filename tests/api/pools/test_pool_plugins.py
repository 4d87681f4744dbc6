"""Tests for pool plugins and environments over REST."""

import json

import pytest

from pools.models import NodePool
from tests.api.conftest import Caller
from tests.cast import Cast

TOKEN = "hf_verysecrettoken"
POOL = {
    "name": "train", "provider": "fake", "runtime": "fake", "nodes": 2, "gpus_per_node": 8,
    "plugins": ["torch", {"name": "huggingface", "parameters": {"token": TOKEN}}],
    "environment": {"python": "3.12", "pip": ["numpy>=2"], "env": {"TOKENIZERS_PARALLELISM": "false"}},
}  # fmt: skip


@pytest.mark.shows("PLG-01", "PLG-41", "PLG-47")
def test_plugins_keep_their_order_and_tokens_are_never_returned(alice: Caller, frank: Caller) -> None:
    answers = [alice.post("node-pools", POOL, Idempotency_Key="once")]
    answers.append(alice.post("node-pools", POOL, Idempotency_Key="once"))
    answers += [alice.get("node-pools/train"), alice.get("node-pools/train/environment")]
    answers += [alice.get("node-pools"), alice.get("audit"), frank.get("node-pools/train")]
    assert [answer.status_code for answer in answers[:5]] == [201, 201, 200, 200, 200]
    assert not [answer for answer in answers if TOKEN in answer.content.decode()]
    pool = answers[2].json()
    assert [(plugin["name"], list(plugin["secrets_set"])) for plugin in pool["plugins"]] == [
        ("torch", []), ("huggingface", ["token"]),
    ]  # fmt: skip
    assert pool["environment"] == POOL["environment"]
    environment = answers[3].json()
    assert environment["digest"] == pool["environment_digest"]
    assert environment["image"]["secrets"] == ["HF_TOKEN"]
    assert environment["script"].startswith("#!/bin/sh\n")


@pytest.mark.heavy
def test_pool_response_is_a_valid_request_body(alice: Caller) -> None:
    alice.post("node-pools", POOL)
    before = alice.get("node-pools/train").json()
    sent = {"plugins": before["plugins"], "environment": before["environment"]}
    after = alice("PATCH", "node-pools/train", sent, headers={"If-Match": '"1"'})
    assert (after.status_code, after.json()["version"]) == (200, 1)
    assert after.json()["environment_digest"] == before["environment_digest"]


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"plugins": ["torhc"]}, "plugins[0].name"),
        ({"plugins": [{"name": "torch", "parameters": {"backend": 7}}]}, "plugins[0].parameters.backend"),
        ({"plugins": None}, ""),
        ({"plugins": {"torch": {}}}, "plugins"),
        ({"plugins": [7]}, "plugins[0]"),
        ({"environment": ["numpy"]}, "environment"),
        ({"environment": {"pip": [7]}}, "environment.pip[0]"),
        ({"environment": {"indexes": ["https://a"]}}, "environment.indexes[0]"),
        ({"environment": {"python": "3.12; reboot"}}, "environment.python"),
    ],
)
def test_error_names_the_path_of_an_invalid_plugin_or_environment(
    alice: Caller, values: dict[str, object], path: str
) -> None:
    answer = alice.post("node-pools", {**POOL, **values})
    if not path:
        assert answer.status_code == 201
        return
    assert answer.status_code == 422
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["errors"][0]["path"] == path
    assert not NodePool.objects.filter(name="train").exists()


def test_only_platform_admins_set_plugins(bob: Caller, cast: Cast) -> None:
    answer = bob("PATCH", f"node-pools/{cast.pool.name}", {"plugins": ["torch"]}, headers={"If-Match": "*"})
    assert answer.status_code == 403


@pytest.mark.shows("PLG-35")
def test_available_plugins_are_listed_with_their_parameters(frank: Caller, alice: Caller) -> None:
    plugins = {plugin["name"]: plugin for plugin in frank.get("plugins").json()["plugins"]}
    assert {"accelerate", "torch", "jax", "keras", "huggingface", "joblib", "sklearn", "cuml", "mps",
            "mig"} == {name for name, plugin in plugins.items() if not plugin["source"]}  # fmt: skip
    assert plugins["huggingface"]["parameters"]["properties"]["token"]["writeOnly"] is True
    assert frank.get("plugins").json()["rejected"] is None
    assert alice.get("plugins").json()["rejected"] == {}


@pytest.mark.heavy
def test_pool_without_plugins_has_no_environment(alice: Caller, cast: Cast) -> None:
    answer = alice.get(f"node-pools/{cast.pool.name}/environment")
    assert answer.status_code == 404
    assert "declares no environment" in json.dumps(answer.json())
