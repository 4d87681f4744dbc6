"""Browser test data: project templates and schedules."""

import itertools
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.utils import timezone

from projects.models import Schedule, ScheduleRun
from projects.services.schedules import ScheduleValues, pause_schedule, set_schedule
from projects.services.workloads.templates import set_template
from tests.browser.data.requests import acting

NIGHTLY = """\
# Train every night on the day's data.
kind: elastic
command: torchrun train.py --data /data/today
env:
  EPOCHS: "3"
roles:
  - name: worker
    min: 4             # starts with this many replicas
    max: 8
    gpu: 1
    cpu: 4
    memory_mib: 16384
max_runtime: 28800
"""
NOTEBOOK = """\
kind: interactive
command: sleep 8h
idle_timeout: 3600
roles:
  - {name: session, replicas: 1, gpu: 0.5, cpu: 4, memory_mib: 16384}
"""
RUNNING = ("skipped", "The previous run, nightly, had not ended.")
REJECTED = ("rejected", "Node pool 'night' does not exist. Allowed: local, serve, train.")


def create_templates(scene: Any) -> None:
    dave, ada = (acting(scene.people[name]) for name in ("dave", "ada"))
    vision, speech = scene.projects["vision"], scene.projects["speech"]
    for name, text, description in (
        ("nightly", NIGHTLY, "The nightly run"), ("notebook", NOTEBOOK, "Half a GPU for experiments"),
    ):  # fmt: skip
        set_template(actor=dave, project=vision, name=name, text=text, description=description)
    set_template(actor=ada, project=speech, name="transcribe", text=NIGHTLY)
    nightly = ScheduleValues("0 3 * * 1-5", "Europe/Berlin", template="nightly")
    create_schedule(scene, "nightly", nightly, weekdays=range(5), latest=RUNNING)
    weekly = ScheduleValues("0 6 * * 1", "Europe/Berlin", overlap="replace", text=NIGHTLY)
    paused = create_schedule(scene, "weekly", weekly, weekdays=range(1), latest=REJECTED)
    pause_schedule(actor=dave, schedule=paused)


def create_schedule(
    scene: Any, name: str, values: ScheduleValues, *, weekdays: range, latest: tuple[str, str]
) -> Schedule:
    """Create a schedule with its last six runs, all submitted except the latest."""
    dave, vision = acting(scene.people["dave"]), scene.projects["vision"]
    schedule = set_schedule(actor=dave, project=vision, name=name, values=values)
    now = timezone.now().astimezone(ZoneInfo(values.time_zone))
    due = now.replace(hour=int(values.cron.split()[1]), minute=0, second=0, microsecond=0)
    times = (due - timedelta(days=number) for number in itertools.count())
    past = (time for time in times if time < now and time.weekday() in weekdays)
    for (outcome, message), at in zip([latest, *[("submitted", "")] * 5], past, strict=False):
        ScheduleRun.objects.create(schedule=schedule, due_at=at, outcome=outcome, message=message)
    return schedule
