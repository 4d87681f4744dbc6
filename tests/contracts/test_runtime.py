"""Contract tests for every runtime. `ray/test_ray.py` runs them on Ray."""

import json
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pools.runtimes.base import ChannelRejected, PodCause, PodState, StopNotice
from pools.runtimes.shim.channels.frames import (
    CREDIT,
    END,
    FROM_POD,
    INPUT,
    OUTPUT,
    START,
    STATUS,
    FrameReader,
    encode_frame,
)
from tests.contracts.kubernetes.stage import KubernetesStage, fake_kubernetes_stage
from tests.contracts.pods import (
    LEAVES_FILES,
    PATIENCE,
    FakeStage,
    LocalStage,
    Stage,
    claim_files_of_an_ended_pod_are_read_without_links,
    ended,
    order,
    poll_until,
    running,
)


@pytest.fixture(params=["local", "fake", "kubernetes"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    if request.param == "fake":
        yield FakeStage()
        return
    if request.param == "kubernetes":
        with fake_kubernetes_stage(tmp_path / "runtime") as stage:
            yield stage
        return
    local = LocalStage(tmp_path / "runtime")
    yield local
    local.sweep()


@pytest.mark.every_case
def test_ended_pod_reports_its_exit_code(stage: Stage) -> None:
    stage.runtime.start(stage.long("p-1"))
    report = running(stage.runtime, "p-1")
    assert report.started_at is not None
    assert report.exit_code is None
    stage.end_pod("p-1", 7)
    report = ended(stage.runtime, "p-1")
    assert (report.exit_code, report.signal, report.cause) == (7, None, PodCause.NONE)
    assert report.started_at <= report.ended_at  # type: ignore[operator]


def test_crashed_pod_reports_its_signal(stage: Stage) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    stage.crash_pod("p-1", 11)
    report = ended(stage.runtime, "p-1")
    assert (report.exit_code, report.signal, report.cause) == (None, 11, PodCause.NONE)


def test_repeated_start_request_starts_the_pod_only_once(stage: Stage) -> None:
    for _ in range(3):
        stage.runtime.start(stage.long("p-1"))
    first = running(stage.runtime, "p-1")
    stage.runtime.start(stage.long("p-1"))
    assert running(stage.runtime, "p-1") == first
    stage.end_pod("p-1", 3)
    ended(stage.runtime, "p-1")
    stage.runtime.start(stage.long("p-1"))
    assert stage.runtime.get_reports(["p-1"])["p-1"].exit_code == 3


def test_concurrently_started_pods_each_start_once(stage: Stage) -> None:
    orders = [stage.long(f"p-{number}") for number in range(3)]
    for each in [*orders, *orders]:
        stage.runtime.begin_start(each)
    for each in orders:
        stage.runtime.start(each)
        running(stage.runtime, each.pod_id)
    assert stage.runtime.list_pods() == ("p-0", "p-1", "p-2")


@pytest.mark.every_case
def test_stopped_pod_ends_within_its_grace_period(stage: Stage) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    stage.runtime.stop("p-1", 60)
    report = ended(stage.runtime, "p-1")
    assert (report.signal, report.cause) == (15, PodCause.STOPPED)
    stage.runtime.stop("p-1", 0)
    assert stage.runtime.get_reports(["p-1"])["p-1"] == report


def test_pod_that_ignores_sigterm_is_killed_after_its_grace_period(stage: Stage) -> None:
    stage.runtime.start(stage.stubborn("p-1"))
    running(stage.runtime, "p-1")
    stage.write_output("p-1", b"here\n")  # from here on, the pod ignores SIGTERM
    stage.runtime.stop("p-1", 1)
    if isinstance(stage, FakeStage):  # real time may have passed already
        assert stage.runtime.get_reports(["p-1"])["p-1"].state == PodState.RUNNING
    stage.wait_out_grace_period(1)
    report = ended(stage.runtime, "p-1")
    assert (report.signal, report.cause) == (9, PodCause.STOPPED)


@pytest.mark.heavy
def test_second_stop_request_can_shorten_the_grace_period(stage: Stage) -> None:
    stage.runtime.start(stage.stubborn("p-1"))
    running(stage.runtime, "p-1")
    stage.write_output("p-1", b"here\n")
    stage.runtime.stop("p-1", 3600)
    stage.runtime.stop("p-1", 0)
    assert ended(stage.runtime, "p-1").signal == 9


def start_noticing(stage: Stage) -> None:
    """Start a pod that handles SIGUSR1, and wait until its handler is installed."""
    if isinstance(stage, KubernetesStage):
        pytest.skip("Kubernetes sends no signal ahead of SIGTERM")
    stage.runtime.start(stage.noticing("p-1"))
    running(stage.runtime, "p-1")
    if not isinstance(stage, FakeStage):
        poll_until(lambda: stage.runtime.read_log("p-1", 0, 100).data, lambda data: b"ready" in data)


def test_pod_receives_the_preemption_notice_and_continues_during_its_lead_time(stage: Stage) -> None:
    start_noticing(stage)
    for _ in range(2):
        stage.runtime.stop("p-1", 60, StopNotice(signal.SIGUSR1, 3600))
    poll_until(lambda: stage.runtime.read_log("p-1", 0, 100).data, lambda data: b"noticed" in data)
    assert stage.runtime.get_reports(["p-1"])["p-1"].state == PodState.RUNNING
    stage.runtime.stop("p-1", 60)
    report = ended(stage.runtime, "p-1")
    assert (report.signal, report.cause) == (signal.SIGTERM, PodCause.STOPPED)
    assert stage.runtime.read_log("p-1", 0, 100).data.count(b"noticed") == 1, (
        "the second stop is a repetition"
    )


@pytest.mark.heavy
def test_sigterm_follows_the_preemption_notice_after_its_lead_time(stage: Stage) -> None:
    start_noticing(stage)
    stage.runtime.stop("p-1", 60, StopNotice(signal.SIGUSR1, 1))
    stage.wait_out_grace_period(1)
    report = ended(stage.runtime, "p-1")
    assert (report.signal, report.cause) == (signal.SIGTERM, PodCause.STOPPED)
    assert b"noticed" in stage.runtime.read_log("p-1", 0, 100).data


def test_pod_ends_if_its_command_ends_during_the_lead_time(stage: Stage) -> None:
    start_noticing(stage)
    stage.runtime.stop("p-1", 60, StopNotice(signal.SIGUSR1, 3600))
    stage.finish_noticing("p-1")
    report = ended(stage.runtime, "p-1")
    assert (report.exit_code, report.cause) == (4, PodCause.STOPPED)


def test_pod_without_a_signal_handler_does_not_receive_the_preemption_notice(stage: Stage) -> None:
    start_noticing(stage)
    stage.runtime.start(stage.long("p-2"))
    running(stage.runtime, "p-2")
    for pod_id in ("p-2", "p-1"):
        stage.runtime.stop(pod_id, 60, StopNotice(signal.SIGUSR1, 3600))
    poll_until(lambda: stage.runtime.read_log("p-1", 0, 100).data, lambda data: b"noticed" in data)
    assert stage.runtime.get_reports(["p-2"])["p-2"].state == PodState.RUNNING
    stage.runtime.stop("p-2", 60)
    assert ended(stage.runtime, "p-2").signal == signal.SIGTERM


def test_pod_stopped_before_its_start_never_starts(stage: Stage) -> None:
    stage.runtime.stop("p-1", 10)
    stage.runtime.start(stage.long("p-1"))
    report = stage.runtime.get_reports(["p-1"])["p-1"]
    assert (report.state, report.cause, report.started_at) == (PodState.EXITED, PodCause.STOPPED, None)
    assert stage.runtime.list_pods() == ("p-1",)


def test_pod_that_was_never_started_is_unknown(stage: Stage) -> None:
    assert stage.runtime.get_reports(["p-9"])["p-9"].state == PodState.UNKNOWN
    assert stage.runtime.get_reports([]) == {}
    assert stage.runtime.read_log("p-9", 0, 100).data == b""


def test_pods_survive_a_restart_of_the_runtime(stage: Stage) -> None:
    stage.runtime.start(stage.long("p-1"))
    stage.runtime.start(stage.long("p-2"))
    before = running(stage.runtime, "p-1")
    running(stage.runtime, "p-2")
    after = stage.restart()
    assert after.list_pods() == ("p-1", "p-2")
    assert running(after, "p-1") == before
    stage.end_pod("p-1", 4)
    stage.crash_pod("p-2", 6)
    assert ended(after, "p-1").exit_code == 4
    assert ended(after, "p-2").signal == 6


def test_forgotten_pod_keeps_its_log_and_never_restarts(stage: Stage) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    stage.write_output("p-1", b"one\ntwo\n")
    stage.runtime.forget_in_background("p-1")
    stage.runtime.forget("p-1")
    assert stage.runtime.list_pods() == ("p-1",), "a running pod is not forgotten"
    stage.end_pod("p-1", 0)
    ended(stage.runtime, "p-1")
    stage.runtime.forget_in_background("p-1")
    stage.runtime.forget("p-1")
    assert stage.runtime.list_pods() == ()
    stage.runtime.start(stage.long("p-1"))
    assert stage.runtime.list_pods() == ()
    chunk = stage.runtime.read_log("p-1", 4, 100)
    assert (chunk.data, chunk.complete) == (b"two\n", True)
    stage.runtime.drop_log("p-1")
    assert stage.runtime.read_log("p-1", 0, 100).data == b""


def test_log_of_a_running_pod_is_read_by_offset(stage: Stage) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    text = "Grüße\0\xff\n".encode() + b"\xff\xfe half a line" + stage.line_end
    stage.write_output("p-1", text)
    first = stage.runtime.read_log("p-1", 0, 4)
    assert (first.data, first.offset, first.next_offset) == (text[:4], 0, 4)
    second = stage.runtime.read_log("p-1", first.next_offset, 1000)
    assert (second.data, second.complete) == (text[4:], False)
    nothing = stage.runtime.read_log("p-1", second.next_offset, 1000)
    assert (nothing.data, nothing.next_offset, nothing.complete) == (b"", len(text), False)
    stage.write_output("p-1", b" more\n")
    third = stage.runtime.read_log("p-1", second.next_offset, 1000)
    assert (third.data, third.size) == (b" more\n", len(text) + 6)
    stage.end_pod("p-1", 0)
    ended(stage.runtime, "p-1")
    assert stage.runtime.read_log("p-1", third.next_offset, 1000).complete
    beyond = stage.runtime.read_log("p-1", 10_000, 10)
    assert (beyond.data, beyond.offset) == (b"", len(text) + 6)


def test_log_timestamps_outlive_the_pod(stage: Stage) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    assert stage.runtime.read_log_times("p-1", 0, 100) == []
    stage.write_output("p-1", b"one\n")
    size = stage.runtime.read_log("p-1", 0, 100).size
    end, moment = stage.runtime.read_log_times("p-1", 0, size)[-1]
    assert end == size and moment > 0
    stage.end_pod("p-1", 0)
    ended(stage.runtime, "p-1")
    stage.runtime.forget_in_background("p-1")
    stage.runtime.forget("p-1")
    times = stage.runtime.read_log_times("p-1", 0, size)
    assert times[-1][0] == size and abs(times[-1][1] - moment) < 1000
    assert stage.runtime.read_log_times("p-1", size, size + 1) == []
    stage.runtime.drop_log("p-1")
    assert stage.runtime.read_log_times("p-1", 0, size) == []


def test_log_tail_contains_only_whole_lines(stage: Stage) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    end, two = stage.line_end, b"two" + stage.line_break
    stage.write_output("p-1", b"one\n" + two + b"three\nfour" + end)
    assert stage.runtime.tail_log("p-1", 2).data == b"three\nfour" + end
    tail = stage.runtime.tail_log("p-1", 3)
    expected = two + b"three\nfour" + end
    assert (tail.data, tail.offset, tail.next_offset) == (expected, 4, 4 + len(expected))
    assert stage.runtime.tail_log("p-1", 99).data == b"one\n" + expected
    assert stage.runtime.tail_log("p-1", 0).data == b""


def test_channel_runs_a_command_in_the_pod_until_its_connection_closes(stage: Stage) -> None:
    with pytest.raises(ChannelRejected):
        stage.runtime.open_channel("p-1")
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    if not stage.has_channels:
        with suppress(ChannelRejected):
            frames = exchange(stage.runtime.open_channel("p-1"), ["true"], b"")
            assert json.loads(frames[STATUS])["error"]
        return
    frames = exchange(stage.runtime.open_channel("p-1"), ["sh", "-c", "echo $RANK; cat; exit 3"], b"typed")
    assert frames == {OUTPUT: b"0\ntyped", STATUS: b'{"exit_code": 3}'}
    with stage.runtime.open_channel("p-1") as left_open:
        left_open.sendall(encode_frame(START, b'{"command": ["sh", "-c", "echo on; exec sleep 5000"]}'))
        assert left_open.recv(100)
        stage.end_pod("p-1", 0)
        assert ended(stage.runtime, "p-1").exit_code == 0
        assert left_open.recv(100) == b""
    with pytest.raises(ChannelRejected, match="not running"):
        stage.runtime.open_channel("p-1")


def exchange(
    connection: socket.socket, request: list[str] | dict[str, object], data: bytes
) -> dict[int, bytes]:
    with connection:
        request = request if isinstance(request, dict) else {"command": request}
        connection.sendall(encode_frame(START, json.dumps(request).encode()))
        connection.sendall(encode_frame(INPUT, data) + encode_frame(END))
        reader, received = FrameReader(FROM_POD), dict[int, bytes]()
        while STATUS not in received and (part := connection.recv(4096)):
            for kind, payload in reader.feed(part):
                received[kind] = received.get(kind, b"") + payload
    received.pop(CREDIT, None)
    return received


def test_usage_of_running_pods_is_measured(stage: Stage) -> None:
    stage.runtime.start(stage.long("p-1"))
    stage.runtime.start(stage.long("p-2"))
    running(stage.runtime, "p-1")
    running(stage.runtime, "p-2")
    for pod_id in ("p-1", "p-2"):
        stage.write_output(pod_id, b"up\n")  # from here on, the pods wait
    before = stage.runtime.measure(["p-1", "p-2", "p-9"], []).pods
    if not stage.measures_usage:
        assert before == {}
        return
    assert before.keys() == {"p-1", "p-2"}, "an unknown pod is not measured"
    stage.work("p-1")
    after = stage.restart().measure(["p-1", "p-2"], []).pods
    assert after["p-1"].cpu_seconds >= before["p-1"].cpu_seconds + 0.05, (
        "the usage of ended child processes counts"
    )
    assert after["p-2"].cpu_seconds <= before["p-2"].cpu_seconds + 0.04
    assert after["p-1"].memory_mib < 100
    stage.end_pod("p-1", 0)
    ended(stage.runtime, "p-1")
    assert stage.runtime.measure(["p-1"], []).pods == {}


def test_command_that_cannot_be_started_is_reported(stage: Stage) -> None:
    stage.runtime.start(stage.order("p-1", "echo", "a\0b"))
    report = ended(stage.runtime, "p-1")
    assert report.cause == PodCause.START_FAILED
    assert "NUL" in report.message


def test_pod_state_change_wakes_a_waiting_process(stage: Stage) -> None:
    fds = stage.runtime.wake_fds()
    stage.runtime.start(stage.long("p-1"))
    assert select.select(fds, [], [], PATIENCE)[0]
    running(stage.runtime, "p-1")

    def is_quiet() -> bool:
        stage.runtime.clear_wakeups()
        return not select.select(fds, [], [], 0)[0]

    poll_until(is_quiet)
    stage.end_pod("p-1", 0)
    assert select.select(fds, [], [], PATIENCE)[0]
    assert ended(stage.runtime, "p-1").exit_code == 0


def test_rendezvous_ports_are_distinct(stage: Stage) -> None:
    places = {stage.runtime.rendezvous() for _ in range(50)}
    assert len(places) == 50
    assert {host for host, _ in places} <= {"127.0.0.1", ""}
    assert all(1024 < port < 32768 for _, port in places)


def test_links_are_not_followed_when_files_of_an_ended_local_pod_are_read(tmp_path: Path) -> None:
    local = LocalStage(tmp_path / "runtime")
    pod = order("p-1", *LEAVES_FILES, secret_files={"key": "hidden"})
    claim_files_of_an_ended_pod_are_read_without_links(local.runtime, pod)


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".hidden", "x" * 200, "a\0b", "a\nb"])
def test_pod_name_cannot_escape_the_pod_directory(tmp_path: Path, name: str) -> None:
    local = LocalStage(tmp_path)
    for attempt in (
        lambda: local.runtime.start(order(name)),
        lambda: local.runtime.stop(name, 1),
        lambda: local.runtime.read_log(name, 0, 1),
        lambda: local.runtime.start(order("p-1", workspace=name)),
    ):
        with pytest.raises(ValueError, match="not a valid pod or workspace name"):
            attempt()
    assert not (tmp_path.parent / "x").exists()
