"""Tests for volumes in S3 over REST: permissions, credentials and the data that nodes receive."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from pools.buckets.bucket import Bucket, ObjectPage
from pools.engine.volumes import usable_volumes
from pools.joining import secrets
from pools.models import NodePool
from projects.api.volumes import CALLS_MAX
from projects.models import Audit, Pod, PodOutputs, Project, Workload
from scheduler.loop.dispatch.starts.images import NO_IMAGE
from scheduler.loop.dispatch.starts.pod_specs import build_pod_spec
from scheduler.loop.dispatch.starts.secrets import SecretReader
from scheduler.loop.observe.specs import SpecCache
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast, training
from tests.factories import node, place
from tests.volumes.object_store import KEY, KEY_ID, ObjectStore, object_store

SECRET = "node-pools/local/secrets/s3-reader"
CREDENTIALS = {"access_key_id": KEY_ID, "secret_access_key": KEY}


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as store:
        store.fill("datasets", {"set/a": b"one", "set/b/c": b"two", "other/d": b"three"})
        yield store


@pytest.fixture(autouse=True)
def local_url(settings: Any) -> None:
    settings.BERTH_LOCAL_URL = "http://127.0.0.1:8000"


def edit(user: Caller, *volumes: dict[str, Any]) -> Any:
    current = user.get("node-pools/local")
    body = {"volumes": list(volumes)}
    return user("PATCH", "node-pools/local", body, headers={"If-Match": current.headers["ETag"]})


def problems(answer: Any) -> dict[str, str]:
    assert answer.status_code == 422, answer.content
    return {each["path"]: each["message"] for each in answer.json()["errors"]}


def volume(store: ObjectStore, **changes: Any) -> dict[str, Any]:
    values = {"name": "data", "source": "s3://datasets/set", "endpoint": store.url, "secret": "s3-reader"}
    return values | changes


@pytest.fixture
def pod(store: ObjectStore, cast: Cast, alice: Caller, dave: Caller) -> Pod:
    node(cast.pool)
    assert alice("PUT", SECRET, CREDENTIALS).status_code == 201
    answer = edit(alice, volume(store, projects=["vision"], max_gib=2))
    assert answer.status_code == 200, answer.content
    mount = {"volumes": [{"name": "data", "path": "/data"}]}
    answer = dave.post("workloads", training(project="vision") | mount)
    assert answer.status_code == 201, answer.content
    workload = Workload.objects.get(pk=answer.json()["id"])
    return Pod.objects.get(pk=place(workload, node(cast.pool), [], state="starting").pk)


@pytest.mark.heavy
def test_admin_can_define_and_read_an_s3_volume(store: ObjectStore, cast: Cast, alice: Caller) -> None:
    alice("PUT", SECRET, CREDENTIALS)
    assert edit(alice, volume(store)).status_code == 200
    [shown] = alice.get("node-pools/local").json()["volumes"]
    expected: dict[str, Any] = {
        "access": "read_only",
        "nodes": {},
        "projects": [],
        "region": None,
        "max_gib": 100,
    }
    assert shown == volume(store) | expected
    assert edit(alice, shown).status_code == 200, "the response is a valid request"
    directory = {"name": "data", "source": "/mnt/data"}
    edit(alice, directory)
    [shown] = alice.get("node-pools/local").json()["volumes"]
    assert [shown[key] for key in ("endpoint", "region", "secret", "max_gib")] == [None] * 4
    assert edit(alice, shown).status_code == 200


def test_only_platform_admins_define_volumes_and_their_credentials(
    store: ObjectStore, cast: Cast, caller: Callable[..., Caller]
) -> None:
    for name in ("bob", "carol", "dave"):
        user = caller(name)
        assert edit(user, volume(store)).status_code == 403, name
        assert user("PUT", SECRET, CREDENTIALS).status_code == 403, name
    assert NodePool.objects.get(name="local").volumes == []


def test_access_key_is_write_only_and_pods_cannot_use_it(cast: Cast, alice: Caller, dave: Caller) -> None:
    stored = alice("PUT", SECRET, CREDENTIALS)
    assert (stored.json()["kind"], stored.json()["username"]) == ("s3_key", KEY_ID)
    texts = [stored.content, alice.get(SECRET).content, alice.get("node-pools/local/secrets").content]
    texts.append(str(list(Audit.objects.values())).encode())
    assert all(KEY.encode() not in text for text in texts)
    assert KEY_ID.encode() in texts[-1]
    use = {"secrets": [{"name": "s3-reader", "env": "KEY"}]}
    rejected = dave.post("workloads", training(project="vision") | use)
    assert (rejected.status_code, "s3-reader" in rejected.json()["detail"]) == (422, True)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"access_key_id": KEY_ID}, "secret_access_key"),
        ({"secret_access_key": KEY}, "access_key_id"),
        ({"access_key_id": "a b", "secret_access_key": KEY}, "access_key_id"),
        ({"access_key_id": KEY_ID, "secret_access_key": ""}, "secret_access_key"),
        ({**CREDENTIALS, "value": "x"}, "value"),
        ({**CREDENTIALS, "registry": "r.example.org"}, "value"),
    ],
)
def test_incomplete_access_key_is_rejected_and_not_repeated(
    cast: Cast, alice: Caller, body: dict[str, str], path: str
) -> None:
    answer = alice("PUT", SECRET, body)
    assert path in problems(answer)
    assert KEY.encode() not in answer.content


def test_access_key_is_rejected_in_a_project_secret(cast: Cast, alice: Caller) -> None:
    answer = alice("PUT", "projects/vision/secrets/s3-reader", CREDENTIALS)
    assert problems(answer) == {"access_key_id": "is not used by projects"}


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"source": "s3://"}, "source", "does not name a valid bucket"),
        ({"source": "s3:///set"}, "source", "does not name a valid bucket"),
        ({"source": "s3://Bad_Bucket/set"}, "source", "does not name a valid bucket"),
        ({"source": "s3://datasets/a/../b"}, "source", "has a prefix with an empty part, . or .."),
        ({"source": "s3://datasets//a"}, "source", "has a prefix with an empty part, . or .."),
        ({"source": f"s3://datasets/{'a' * 600}"}, "source", "has a prefix of more than 512 bytes"),
        ({"source": "s3://datasets/a\nb"}, "source", "has a prefix with a control character"),
        ({"access": "write"}, "access", "is unknown"),
        ({"endpoint": "s3.example.org"}, "endpoint", "is not a valid object store URL"),
        ({"endpoint": "https://s3.example.org/path"}, "endpoint", "is not a valid object store URL"),
        ({"endpoint": "https://id:key@s3.example.org"}, "endpoint", "contains credentials"),
        ({"endpoint": "file:///etc/passwd"}, "endpoint", "is not a valid object store URL"),
        ({"region": "Europe"}, "region", "is not a valid region"),
        ({"max_gib": 0}, "max_gib", "is not a valid size"),
        ({"max_gib": True}, "max_gib", "is not a valid size"),
        ({"max_gib": "many"}, "max_gib", "is not a valid size"),
        ({"secret": "No Secret"}, "secret", "is not a valid name"),
        ({"secret": "missing"}, "secret", "is not a secret of this pool with an S3 access key"),
        ({"source": "/mnt/data"}, "endpoint", "is not supported for this source"),
        ({"maxgib": 1}, "maxgib", "unknown key"),
    ],
)
def test_error_names_the_invalid_volume_field(
    store: ObjectStore, cast: Cast, alice: Caller, changes: dict[str, Any], path: str, message: str
) -> None:
    alice("PUT", SECRET, CREDENTIALS)
    messages = problems(edit(alice, volume(store, **changes)))
    assert messages[f"volumes[0].{path}"].startswith(message)
    assert NodePool.objects.get(name="local").volumes == []


@pytest.mark.heavy
def test_error_for_the_wrong_kind_of_secret_includes_the_command_to_set_it(
    store: ObjectStore, cast: Cast, alice: Caller
) -> None:
    alice("PUT", SECRET, {"value": "text"})
    answer = edit(alice, volume(store))
    [problem] = answer.json()["errors"]
    assert "berth secret set s3-reader --pool local --access-key-id ID" in problem["allowed"]


def test_kubernetes_pools_reject_s3_volumes(store: ObjectStore) -> None:
    from berth.core.errors import Invalid
    from pools.engine.volumes import normalize_volumes

    with pytest.raises(Invalid) as rejected:
        normalize_volumes([volume(store)], is_kubernetes=True)
    assert str(rejected.value.problems[0]).startswith(
        "volumes[0].source: is not supported on Kubernetes, whose nodes do not run the Berth agent"
    )


@pytest.mark.heavy
def test_server_without_boto3_rejects_s3_volumes(
    store: ObjectStore, cast: Cast, alice: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice("PUT", SECRET, CREDENTIALS)
    monkeypatch.setattr("pools.buckets.logins.find_spec", lambda _: None)
    assert "pip install 'berth-platform[aws]'" in problems(edit(alice, volume(store)))["volumes[0].source"]


def test_pod_spec_names_the_server_and_contains_no_credentials(pod: Pod) -> None:
    spec = SpecCache().get(pod.workload).spec
    assert spec is not None
    pod.workload.rendezvous = {"address": "", "port": 1}
    order = build_pod_spec(pod, spec, [pod], NO_IMAGE, SecretReader())
    assert order.volumes_url == f"http://127.0.0.1:8000/api/v1/pods/{pod.pk}/volumes"
    [mount] = order.volumes
    assert (mount.source, mount.path, mount.is_writable, len(mount.cache)) == (
        "s3://datasets/set", "/data", False, 32,
    )  # fmt: skip
    assert order.download_secret == secrets.download_secret(str(pod.pk))
    assert order.code_url == ""
    assert not {KEY, KEY_ID} & {*order.env.values(), *order.secret_env.values()}


def test_node_lists_and_downloads_only_objects_in_volumes_of_its_live_pods(
    pod: Pod, store: ObjectStore
) -> None:
    agent, place = Caller(secrets.download_secret(str(pod.pk))), f"pods/{pod.pk}/volumes/data"
    page = agent.get(f"{place}/objects").json()
    assert [(each["path"], each["size"]) for each in page["objects"]] == [("a", 3), ("b/c", 3)]
    assert (page["next"], page["size_max"]) == ("", 2 * 2**30)
    objects = [{"path": each["path"], "etag": each["etag"]} for each in page["objects"]]
    answer = agent.post(f"{place}/urls", {"objects": objects})
    assert [url.partition("?")[0] for url in answer.json()["urls"]] == [
        f"{store.url}/datasets/set/a", f"{store.url}/datasets/set/b/c",
    ]  # fmt: skip
    assert KEY.encode() not in answer.content

    for wrong in (Caller(), Caller(secrets.pod_secret(str(pod.pk))), Caller(secrets.download_secret("0"))):
        assert wrong.get(f"{place}/objects").status_code == 401
        assert wrong.post(f"{place}/urls", {"objects": objects}).status_code == 401
    assert agent.get(f"pods/{pod.pk}/volumes/other/objects").status_code == 401
    assert agent.post(f"{place}/urls", {"objects": objects * 300}).status_code == 422
    outside = {"objects": [{"path": "../other/d", "etag": '"1"'}]}
    assert problems(agent.post(f"{place}/urls", outside)) == {"objects[0].path": "is not a valid object path"}
    Pod.objects.filter(pk=pod.pk).update(state="succeeded", ended_at=timezone.now())
    assert agent.get(f"{place}/objects").status_code == 401


@pytest.mark.heavy
@pytest.mark.django_db(transaction=True)
def test_requests_to_an_unresponsive_object_store_hold_no_database_connection(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Queue[bool] = Queue()
    responds = threading.Event()

    def hang(bucket: Bucket, after: str) -> ObjectPage:
        calls.put(connection.connection is not None)
        assert responds.wait(60)
        return ObjectPage([], "")

    monkeypatch.setattr(Bucket, "list_page", hang)
    agent, place = Caller(secrets.download_secret(str(pod.pk))), f"pods/{pod.pk}/volumes/data/objects"

    def fetch(_: int) -> int:
        try:
            return int(agent.get(place).status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(CALLS_MAX) as threads:
        waiting = [threads.submit(fetch, number) for number in range(CALLS_MAX)]
        assert [calls.get(timeout=180) for _ in waiting] == [False] * CALLS_MAX
        rejected = agent.get(place)
        assert (rejected.status_code, "Try again" in rejected.json()["detail"]) == (503, True)
        responds.set()
        assert [each.result(60) for each in waiting] == [200] * CALLS_MAX
    assert agent.get(place).status_code == 200


@pytest.mark.heavy
def test_node_gets_no_objects_after_the_volume_or_its_secret_is_removed(
    pod: Pod, store: ObjectStore, alice: Caller
) -> None:
    agent, place = Caller(secrets.download_secret(str(pod.pk))), f"pods/{pod.pk}/volumes/data/objects"
    assert alice("DELETE", SECRET).status_code == 204
    rejected = agent.get(place)
    assert (rejected.status_code, rejected.json()["detail"]) == (
        409, "The volume's secret, s3-reader, does not exist. Ask an admin to create it.",
    )  # fmt: skip
    alice("PUT", SECRET, CREDENTIALS)
    edit(alice, volume(store, projects=["ads"]))
    rejected = agent.get(place)
    assert (rejected.status_code, "no longer offers this S3 volume" in rejected.json()["detail"]) == (
        409,
        True,
    )


def test_members_see_the_volume_but_neither_its_source_nor_its_settings(pod: Pod, dave: Caller) -> None:
    [shown] = dave.get("projects/vision").json()["volumes"]
    assert (shown["name"], shown["access"]) == ("data", "read_only")
    texts = [dave.get("projects/vision").content, dave.get("node-pools/local").content]
    texts.append(dave.get(f"workloads/{pod.workload_id}").content)
    assert all(b"datasets" not in text and b"s3:" not in text for text in texts)


def test_admin_makes_a_volume_writable(store: ObjectStore, cast: Cast, alice: Caller) -> None:
    alice("PUT", SECRET, CREDENTIALS)
    assert edit(alice, volume(store, access="read_write")).status_code == 200
    [shown] = alice.get("node-pools/local").json()["volumes"]
    assert shown["access"] == "read_write"


def pending_changes(pod: Pod, project: Project, **values: Any) -> PodOutputs:
    source = usable_volumes(pod.node.pool.volumes, "vision")["data"].cache
    earlier = make.workload(project, "earlier", phase="completed")
    ended = place(earlier, pod.node, [], state="succeeded", ended_at=timezone.now())
    columns = {"volume": "results", "source": source, **values}
    return PodOutputs.objects.create(pod=ended, **columns)


def test_pod_waits_until_earlier_volume_changes_of_its_project_are_stored(pod: Pod, cast: Cast) -> None:
    agent, place = Caller(secrets.download_secret(str(pod.pk))), f"pods/{pod.pk}/volumes/data/objects"
    row = pending_changes(pod, cast.vision, progress={"size": 12_345_678})
    answer = agent.get(place).json()
    assert answer["objects"] == []
    name = f"{row.pod.role}-{row.pod.index}"
    assert answer["waiting_for"] == (
        f"waiting until the changes that the pod {name} of earlier made to the volume results are stored, "
        "12 MB so far"
    )
    PodOutputs.objects.update(attempts=1, message="The credentials do not allow this.")
    rejected = agent.get(place)
    assert rejected.status_code == 503
    assert rejected.json()["detail"] == (
        f"The changes that the pod {name} of earlier made to the volume cannot be stored right now. The "
        "credentials do not allow this."
    )
    PodOutputs.objects.update(state="stored")
    answer = agent.get(place).json()
    assert (len(answer["objects"]), answer["waiting_for"]) == (2, "")


@pytest.mark.heavy
def test_pod_does_not_wait_for_pods_of_other_projects_or_for_other_volumes(pod: Pod, cast: Cast) -> None:
    agent, place = Caller(secrets.download_secret(str(pod.pk))), f"pods/{pod.pk}/volumes/data/objects"
    pending_changes(pod, cast.speech)
    assert agent.get(place).json()["waiting_for"] == ""
    row = pending_changes(pod, cast.vision, source="another")
    assert agent.get(place).json()["waiting_for"] == ""
    PodOutputs.objects.filter(pk=row.pk).update(source=PodOutputs.objects.exclude(pk=row.pk).get().source)
    Pod.objects.filter(pk=row.pod_id).update(state="running", ended_at=None)
    assert agent.get(place).json()["waiting_for"] == ""


@pytest.mark.heavy
def test_members_see_the_files_that_pods_stored_in_volumes(pod: Pod, cast: Cast, dave: Caller) -> None:
    row = pending_changes(
        pod, cast.vision, state="stored", file_count=3, size=7, deleted_count=1, skipped={"a": "is a link"}
    )
    [shown] = dave.get(f"workloads/{row.pod.workload_id}/outputs").json()["items"]
    assert (shown["volume"], shown["files"], shown["size"], shown["deleted"], shown["paths"]) == (
        "results", 3, 7, 1, [],
    )  # fmt: skip
    missing = dave.get(f"workloads/{row.pod.workload_id}/outputs/files")
    assert missing.status_code == 404, "they are not in the store of outputs"
