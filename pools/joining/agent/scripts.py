"""Run the server's scripts, which install a node's environment and start the node."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time

from .jobs import Job
from .state import STATE, printable_tail, read_file, write_private_file

NODE_FILE = os.path.join(STATE, "node.json")
PREPARE = "prepare"  # name of the job that installs the environment
CHECK_SECONDS = 30
STOP_SECONDS = 30
FAILED_CHECKS_MAX = 2  # a single failure may be harmless, for example while a process is being replaced
_COMPARED = ("instance", "node", "start")


class EnvironmentScript:
    """Script that installs a node's environment. The agent includes the script's progress in each report."""

    def __init__(self, url: str) -> None:
        self.url, self.digest, self.job = url, "", Job(PREPARE)
        self.phases = os.path.join(STATE, "prepare.phases")

    def follow_instructions(self, answer: dict[str, object]) -> None:
        """Start the script that the server's response requests. Stop any other script."""
        digest = str(answer.get("digest") or "")
        if digest == self.digest:
            return
        self.digest = digest
        if not digest:
            self.job.kill()
            return
        env = dict(
            os.environ,
            BERTH_ENVIRONMENTS=os.path.join(STATE, "environments"),
            BERTH_PHASES=self.phases,
            BERTH_CODE=self.url + "/api/v1/machines/worker.tar",
        )
        secrets = answer.get("secrets") or {}
        if isinstance(secrets, dict):
            env.update(secrets)
        write_private_file(self.phases, "")
        self.job.start(str(answer["prepare"]), env)

    def report(self) -> dict[str, object] | None:
        if not self.digest:
            return None
        # Read the exit code first: the phases are complete only after the script has ended.
        code = self.job.exit_code
        phases = parse_phases(read_file(self.phases))
        return {
            "digest": self.digest, "phases": phases, "exit_code": code, "output": self.job.read_output(),
        }  # fmt: skip


class StartScript:
    """Script that starts a node in the background.

    The server's instructions are saved to disk, so that a restarted agent does not stop the pods.
    """

    def __init__(self) -> None:
        self.job = Job("start")
        self.answer: dict[str, object] = {}
        self.answer = self._restore_instructions()
        self.seconds = 0
        self.has_ended = False
        self.failed_checks = 0  # number of consecutive failed checks

    def _restore_instructions(self) -> dict[str, object]:
        """Return the stored instructions if their node is starting or running, otherwise an empty dictionary.

        If the node has failed and the machine has not been rebooted since, run the stop script.
        """
        try:
            self.answer = dict(json.loads(read_file(NODE_FILE)))
        except ValueError:
            return {}
        if not self.job.has_started_since_boot:
            return {}
        if self.job.is_running or (self.job.exit_code == 0 and not self._fails_node_check(self.answer)):
            return self.answer
        self.stop()
        return {}

    def _fails_node_check(self, answer: dict[str, object]) -> bool:
        """Return whether the node's check script fails. A timeout does not count as a failure."""
        if not answer.get("check"):
            return False
        check = ["/bin/sh", "-c", str(answer["check"])]
        try:
            done = subprocess.run(check, env=script_env(answer), check=False, timeout=CHECK_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode != 0

    def _check_started_node(self) -> int:
        """Check a started node. Return the number of consecutive failed checks."""
        is_started = bool(self.answer.get("start")) and self.job.exit_code == 0
        is_failed = is_started and self._fails_node_check(self.answer)
        self.failed_checks = self.failed_checks + 1 if is_failed else 0
        return self.failed_checks

    def follow_instructions(self, answer: dict[str, object]) -> None:
        """Follow the server's instructions.

        Start the node again if its processes have disappeared. If the instructions have changed, update the
        running node or, if that fails, replace it.
        """
        if all(self.answer.get(name) == answer.get(name) for name in _COMPARED):
            self.answer = answer
            if self._check_started_node() < FAILED_CHECKS_MAX:
                return
            print("%s: its processes have exited, so it is restarted" % answer["node"], file=sys.stderr)
            self.answer = {}
        self.failed_checks = 0
        is_same_node = all(self.answer.get(name) == answer.get(name) for name in ("instance", "node"))
        if is_same_node and self.answer.get("start"):
            if not answer.get("start"):
                return  # no script is available for now, for example because the pool has no head node
            if self._apply_update(answer):
                return
        self.job.kill()
        self.stop()
        self.answer = answer
        if answer.get("start"):
            self.has_ended = False
            write_private_file(NODE_FILE, json.dumps(answer))
            self.job.start(str(answer["start"]), script_env(answer))

    def _apply_update(self, answer: dict[str, object]) -> bool:
        """Update the running node. Return False if the node must be restarted instead."""
        if not answer.get("update") or self.job.exit_code != 0:
            return False
        path = write_private_file(os.path.join(STATE, "update.sh"), str(answer["update"]))
        try:
            done = subprocess.run(
                ["/bin/sh", path], env=script_env(answer), stdin=subprocess.DEVNULL, check=False,
                timeout=CHECK_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return False
        if done.returncode:
            return False
        self.answer = answer
        write_private_file(NODE_FILE, json.dumps(answer))
        return True

    def end(self) -> None:
        """Kill the start script and stop its node, even if the node does not seem to be running."""
        self.job.kill()
        if not self.answer:
            with contextlib.suppress(ValueError):
                self.answer = dict(json.loads(read_file(NODE_FILE)))
        self.stop()

    def stop(self) -> None:
        """Run the current node's stop script, if any."""
        if self.answer.get("stop"):
            path = write_private_file(os.path.join(STATE, "stop.sh"), str(self.answer["stop"]))
            try:
                stop = subprocess.run(
                    ["/bin/sh", path], env=script_env(self.answer), check=False, timeout=STOP_SECONDS
                )
                end = "exited with %d" % stop.returncode
            except subprocess.TimeoutExpired:
                end = "did not finish within %d s" % STOP_SECONDS
            print("%s: stop script %s" % (self.answer["node"], end), file=sys.stderr)
        self.answer = {}
        if os.path.exists(NODE_FILE):
            os.unlink(NODE_FILE)

    def report(self) -> dict[str, object] | None:
        """Return the start script's progress, or None if the instructions contain no start script or no
        instance.
        """
        if not self.answer.get("start") or not self.answer.get("instance"):
            return None
        code = self.job.exit_code
        if not self.has_ended:
            self.seconds = max(int(time.time() - self.job.began_at), 0)
            if code is not None:
                self.has_ended = True
                print("%s: start script exited with %d" % (self.answer["node"], code), file=sys.stderr)
        return {
            "instance": self.answer["instance"], "exit_code": code, "seconds": self.seconds,
            "output": self.job.read_output(),
        }  # fmt: skip


def script_env(answer: dict[str, object]) -> dict[str, str]:
    return dict(os.environ, BERTH_NODE=str(answer["node"]), BERTH_ORDINAL=str(answer["ordinal"]))


def parse_phases(lines: str) -> list[dict[str, object]]:
    """Return each phase's latest state, ignoring incomplete lines."""
    phases: dict[str, dict[str, object]] = {}
    for line in lines.splitlines():
        try:
            phase = json.loads(line)
            phase["message"] = printable_tail(phase["message"])
            if phase["phase"] != "ready":
                phases[phase["phase"]] = phase
        except (ValueError, KeyError, TypeError):
            pass
    return list(phases.values())[:64]
