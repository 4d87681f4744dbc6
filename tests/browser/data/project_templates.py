"""Project templates and schedules in the scene."""

from datetime import timedelta
from typing import Any

from projects.actor import Actor
from projects.models import ScheduleRun
from projects.services.schedules import ScheduleValues, pause_schedule, set_schedule
from projects.services.workloads.templates import set_template

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


def create_templates(scene: Any) -> None:
    dave, ada = (Actor.for_user(scene.people[name]) for name in ("dave", "ada"))
    vision, speech = scene.projects["vision"], scene.projects["speech"]
    for name, text, description in (
        ("nightly", NIGHTLY, "The nightly run"), ("notebook", NOTEBOOK, "Half a GPU for experiments"),
    ):  # fmt: skip
        set_template(actor=dave, project=vision, name=name, text=text, description=description)
    set_template(actor=ada, project=speech, name="transcribe", text=NIGHTLY)
    for name, values in (
        ("nightly", ScheduleValues("0 3 * * 1-5", "Europe/Berlin", template="nightly")),
        ("weekly", ScheduleValues("@weekly", overlap="replace", text=NIGHTLY)),
    ):
        schedule = set_schedule(actor=dave, project=vision, name=name, values=values)
        for days, outcome, message in (
            (7, "skipped", "The previous run, nightly, had not ended."),
            (14, "refused", "pools[0]: does not exist; received 'night'; allowed: local, serve, train"),
        ):
            ScheduleRun.objects.create(
                schedule=schedule, due_at=schedule.changed_at - timedelta(days=days), outcome=outcome,
                message=message,
            )  # fmt: skip
    pause_schedule(actor=dave, schedule=schedule)
