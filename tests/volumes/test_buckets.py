"""Tests for listing and signing the objects of a volume in object stores that misbehave."""

import socket
from typing import Any

import pytest

from berth.core.errors import BerthError, Conflict, Unavailable
from pools.buckets import bucket
from pools.buckets.bucket import Bucket
from pools.buckets.logins import BucketLogin
from pools.engine.volumes import Volume
from tests.volumes.object_store import KEY, KEY_ID, ObjectStore, answering


def open_bucket(endpoint: str, source: str = "s3://secret-bucket/secret-prefix") -> Bucket:
    return Bucket(Volume("data", source, endpoint=endpoint), BucketLogin(KEY_ID, KEY))


def test_listing_of_many_objects_reads_every_page(store: ObjectStore) -> None:
    store.fill_directly("many", (f"set/{number:04}" for number in range(1001)))
    volume = open_bucket(store.url, "s3://many/set/")
    first = volume.list_page()
    second = volume.list_page(first.next)
    assert (len(first.objects), [each.path for each in second.objects], second.next) == (1000, ["1000"], "")
    assert (first.objects[0].path, first.objects[0].size) == ("0000", 1)


def test_bucket_prefix_is_optional_and_matches_only_whole_path_segments(store: ObjectStore) -> None:
    store.fill("whole", {"a": b"", "set/b": b"", "settings/c": b""})
    listed = {
        source: [each.path for each in open_bucket(store.url, source).list_page().objects]
        for source in ("s3://whole", "s3://whole/", "s3://whole/set", "s3://whole/none")
    }
    everything = ["a", "set/b", "settings/c"]
    assert list(listed.values()) == [everything, everything, ["b"], []]


def test_signed_url_contains_no_secret_and_names_the_version_of_the_object(store: ObjectStore) -> None:
    store.fill("signed", {"set/a b": b"x"})
    [url] = open_bucket(store.url, "s3://signed/set").sign_urls([("a b", '"etag"')])
    assert url.startswith(f"{store.url}/signed/set/a%20b?")
    assert "X-Amz-SignedHeaders=host%3Bif-match" in url
    assert KEY not in url


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("status", "code", "error", "message"),
    [
        (404, "NoSuchBucket", Conflict, "The bucket does not exist."),
        (403, "AccessDenied", Conflict, "The credentials do not allow this (AccessDenied)."),
        (403, "InvalidAccessKeyId", Conflict, "rejects the credentials (InvalidAccessKeyId)"),
        (403, "SignatureDoesNotMatch", Conflict, "Ask an admin to renew the secret."),
        (400, "AuthorizationHeaderMalformed", Conflict, "Ask an admin to set the volume's region."),
        (400, "Strange", Conflict, "The object store rejects the request (Strange)."),
        (503, "SlowDown", Unavailable, "The object store is overloaded or has failed (SlowDown)."),
        (500, "InternalError", Unavailable, "The object store is overloaded or has failed (InternalError)."),
    ],
)
def test_object_store_error_is_explained_without_its_address(
    status: int, code: str, error: type[BerthError], message: str
) -> None:
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><BucketName>secret-bucket</BucketName></Error>"
    with answering(status, text) as url, pytest.raises(error) as rejected:
        open_bucket(url).list_page()
    assert message in rejected.value.detail
    assert "secret-" not in rejected.value.detail


def test_hanging_or_missing_object_store_raises_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "READ_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unavailable, match=r"^The object store is not responding \(ReadTimeoutError\)\.$"):
            open_bucket(url).list_page()
    with pytest.raises(Unavailable, match="EndpointConnectionError"):
        open_bucket(url).list_page()


def test_error_suggests_a_secret_if_the_server_has_no_s3_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    volume = Bucket(Volume("data", "s3://any", endpoint="http://127.0.0.1:9"), BucketLogin())
    for use in (volume.list_page, lambda: volume.sign_urls([("a", "e")])):
        with pytest.raises(Conflict, match="no credentials"):
            use()
