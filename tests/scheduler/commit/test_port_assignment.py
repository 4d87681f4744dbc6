"""Tests for the port numbers of pods."""

from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

from scheduler.loop.dispatch.starts.ports import _find_free_ports


def pod(*ports: dict[str, Any]) -> Any:
    return SimpleNamespace(
        pk=1, workload=SimpleNamespace(spec={"ports": list(ports)}), node=SimpleNamespace(pool=None)
    )


def post(*numbers: int) -> Any:
    left = chain(numbers, repeat(numbers[-1]))
    return SimpleNamespace(runtimes=lambda _: SimpleNamespace(rendezvous=lambda: ("127.0.0.1", next(left))))


def test_ports_of_a_pod_have_different_numbers() -> None:
    ports = _find_free_ports(
        pod({"name": "a"}, {"name": "b", "port": 21_001}, {"name": "c"}),
        post(21_001, 21_002, 21_002, 21_003, 21_002, 21_004),
    )
    assert ports is not None
    assert {name: place["port"] for name, place in ports.items()} == {"a": 21_002, "b": 21_001, "c": 21_004}


def test_no_ports_are_assigned_if_too_few_are_free() -> None:
    assert _find_free_ports(pod({"name": "a"}, {"name": "b"}), post(21_001)) is None
