"""Tests that options and files produce the same workload document."""

from typing import Any, TypeAlias

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from berth.cli.main import app
from berth.cli.options.quantities import parse_duration, parse_timestamp, parse_toleration
from berth.cli.printing.text import utc_now
from berth.core.spec import parse_workload

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True)
WORDS = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x24F, exclude_categories=["Cc"], exclude_characters="="),
    min_size=1,
    max_size=12,
)
KEYS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
SHORT_PAIRS = st.dictionaries(KEYS, WORDS, max_size=3)
ArgumentsAndDocument: TypeAlias = st.SearchStrategy[tuple[list[str], dict[str, Any]]]
DURATIONS = st.integers(1, 100_000)
BURST = (
    ["--pool=metal", "--pool=cloud", "--burst-after=30m"],
    {"pools": ["metal", "cloud"], "burst_after": 1800},
)


@st.composite
def option(
    draw: st.DrawFn, flag: str, values: st.SearchStrategy[Any], key: str
) -> tuple[list[str], dict[str, Any]]:
    """Draw command-line arguments and the matching section of a document. Both can be empty."""
    value = draw(st.none() | values)
    return ([], {}) if value is None else ([f"{flag}={value}"], {key: value})


def repeated_options(flag: str, key: str) -> ArgumentsAndDocument:
    lists = st.lists(NAMES, max_size=3, unique=True)
    return lists.map(lambda drawn: ([f"{flag}={name}" for name in drawn], {key: drawn} if drawn else {}))


def pair_options(flag: str, key: str) -> ArgumentsAndDocument:
    return SHORT_PAIRS.map(
        lambda drawn: ([f"{flag}={k}={v}" for k, v in drawn.items()], {key: drawn} if drawn else {})
    )


def secret_options() -> ArgumentsAndDocument:
    def drawn(variables: list[str], files: list[str]) -> tuple[list[str], dict[str, Any]]:
        uses = [{"name": "key", "env": name} for name in variables]
        uses += [{"name": "key", "file": name} for name in files]
        arguments = [f"--secret=key={name}" for name in variables]
        return [*arguments, *(f"--secret-file=key={name}" for name in files)], {
            "secrets": uses
        } if uses else {}

    variables = st.lists(KEYS.map("SECRET_{}".format), max_size=2, unique=True)
    return st.builds(drawn, variables, st.lists(NAMES, max_size=2, unique=True))


def dependency_options() -> ArgumentsAndDocument:
    states = st.sampled_from([None, "failed", "any"])
    dependencies = st.dictionaries(NAMES, states, max_size=3)
    return dependencies.map(
        lambda drawn: (
            [f"--after={name}{f':{state}' if state else ''}" for name, state in drawn.items()],
            {"after": [{"workload": n, **({"state": s} if s else {})} for n, s in drawn.items()]}
            if drawn
            else {},
        )
    )


TOP_LEVEL_OPTIONS = st.tuples(
    option("--project", NAMES, "project"),
    option("--kind", st.sampled_from(["training", "elastic", "interactive", "service"]), "kind"),
    option("--priority", st.integers(0, 1000) | st.sampled_from(["low", "very-high"]), "priority"),
    st.sampled_from([([], {}), (["--preemptible"], {"preemptible": True}),
                     (["--no-preemptible"], {"preemptible": False})]),
    option("--max-runtime", DURATIONS, "max_runtime"),
    option("--idle-timeout", DURATIONS, "idle_timeout"),
    option("--preemption-delay", DURATIONS, "preemption_delay"),
    option("--stale-gang-grace", DURATIONS, "stale_gang_grace"),
    option("--grace", st.integers(0, 86_000), "grace_period_seconds"),
    option("--deadline", st.sampled_from(["2026-01-31T09:00:00Z", "2026-01-31T09:00:00+02:00"]), "deadline"),
    st.sampled_from([([], {}), (["--image=ghcr.io/org/train"], {"image": "ghcr.io/org/train"}),
                     (["--image=localhost/a:1", "--image-pull-policy=always"],
                      {"image": "localhost/a:1", "image_pull_policy": "always"})]),
    option("--workdir", NAMES, "working_dir"),
    repeated_options("--pool", "pools") | st.just(BURST),
    dependency_options(),
    pair_options("--env", "env"),
    secret_options(),
    pair_options("--label", "labels"),
    st.sampled_from([([], {}), (["--preemption-signal=USR1@5m"],
                                {"preemption": {"signal": "USR1", "lead": 300}})]),
    st.sampled_from([([], {}), (["--retry=75,KILL max=5 backoff=30s other_node", "--retry=1 action=fail"],
                                {"retry": [{"on": [75, "KILL"], "max": 5, "backoff": "30s",
                                            "other_node": True},
                                           {"on": [1], "action": "fail"}]})]),
    st.sampled_from([([], {}), (["--git=https://git.example.org/a.git", "--git-secret=personal/robot"],
                                {"code": {"git": {"url": "https://git.example.org/a.git", "secret": "robot",
                                                  "personal": True}}})]),
    st.sampled_from([([], {}), (["--notify=ops@example.org", "--notify-on=failed"],
                                {"notifications": [{"to": "ops@example.org", "on": ["failed"]}]})]),
)  # fmt: skip
SIZES: ArgumentsAndDocument = st.one_of(
    st.just(([], {})),
    st.integers(1, 99).map(lambda n: ([f"--replicas={n}"], {"replicas": n})),
    st.tuples(st.integers(1, 9), st.integers(0, 9)).map(
        lambda n: ([f"--min={n[0]}", f"--max={n[0] + n[1]}"], {"min": n[0], "max": n[0] + n[1]})
    ),
)
GPUS: ArgumentsAndDocument = st.one_of(
    st.just(([], {})),
    st.integers(0, 64).map(lambda n: ([f"--gpu={n}"], {"gpu": n})),
    st.tuples(st.integers(1, 999), st.integers(1, 8)).map(
        lambda n: (
            [f"--gpu={n[0] / 1000}", f"--gpu-devices={n[1]}"],
            {"gpu": n[0] / 1000, "gpu_devices": n[1]},
        )
    ),
    st.sampled_from([2000, "8Gi"]).map(lambda m: ([f"--gpu-memory={m}"], {"gpu_memory_mib": m})),
)
ROLE = st.tuples(
    SIZES,
    GPUS,
    option("--role", NAMES, "name"),
    option("--cpu", st.integers(0, 64) | st.sampled_from([0.5, "800m"]), "cpu"),
    option("--memory", st.integers(0, 4096) | st.sampled_from(["600Mi", "1Gi"]), "memory_mib"),
    option("--spread-per-node", st.integers(1, 8), "spread_per_node"),
    repeated_options("--gpu-model", "gpu_models"),
    pair_options("--node-selector", "node_selector"),
    st.sampled_from([
        ([], {}),
        (["--topology=rack"], {"topology": {"required": "rack"}}),
        (["--topology-preferred=zone"], {"topology": {"preferred": "zone"}}),
        (["--toleration=spot=yes:NoSchedule"],
         {"tolerations": [{"key": "spot", "value": "yes", "effect": "NoSchedule"}]}),
        (["--toleration=spot"], {"tolerations": [{"key": "spot", "operator": "Exists"}]}),
    ]),
)  # fmt: skip
COMMANDS: ArgumentsAndDocument = st.one_of(
    st.just(([], {})),
    st.lists(WORDS, min_size=1, max_size=3).map(lambda words: (["--", *words], {"command": words})),
    WORDS.map(lambda line: ([f"--shell={line}"], {"command": line})),
)


@given(name=NAMES, top=TOP_LEVEL_OPTIONS, role=ROLE, command=COMMANDS)
@settings(max_examples=20, deadline=None)
def test_options_and_file_produce_the_same_workload(name: str, top: Any, role: Any, command: Any) -> None:
    typed = [f"--name={name}", *(word for words, _ in (*top, *role, command) for word in words)]
    written: dict[str, Any] = {"name": name}
    for _, part in (*top, command):
        written |= part
    written["roles"] = [{key: value for _, part in role for key, value in part.items()}]
    if name in (entry["workload"] for entry in written.get("after", ())):
        return
    printed = CliRunner().invoke(app, ["submit", "--print", *typed])
    assert printed.exit_code == 0, printed.output
    assert parse_workload(yaml.safe_load(printed.stdout)) == parse_workload(written)


@pytest.mark.parametrize(
    ("typed", "expected"), [("90", 90), ("45s", 45), ("30m", 1800), ("2h", 7200), ("7d", 604_800)]
)
def test_duration_option_is_parsed_with_its_unit(typed: str, expected: int) -> None:
    assert parse_duration("--max-runtime", typed) == expected


def test_age_option_is_parsed_as_a_time_in_the_past() -> None:
    assert parse_timestamp("--since", "2h", utc_now()) < utc_now().isoformat()


def test_toleration_without_value_matches_any_value() -> None:
    assert parse_toleration("spot:NoExecute") == {"key": "spot", "operator": "Exists", "effect": "NoExecute"}


def test_git_secret_without_a_name_is_rejected() -> None:
    git = ("--git=https://git.example.org/a.git", "--git-secret=personal/")
    done = CliRunner().invoke(app, ["submit", "--print", "--name=x", *git, "--", "true"])
    assert done.exit_code == 2
    assert "--git-secret" in done.output
    assert "personal/NAME" in done.output


def test_error_names_the_invalid_retry_rule_key() -> None:
    words = [
        "submit",
        "--name=x",
        "--gpu=0",
        "--retry=out_of_memory memory_factor=2",
        "--print",
        "--",
        "true",
    ]
    done = CliRunner().invoke(app, words)
    assert "--retry memory_max_mib: is required with memory_factor" in done.output
    done = CliRunner().invoke(app, [*words[:3], "--retry=oom", *words[4:]])
    assert "--retry: is not a valid kind of failure" in done.output
