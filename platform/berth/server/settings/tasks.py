"""Task queue settings: background work that may be delayed and may run twice."""

from berth.server.settings.base import env

Q_CLUSTER = {
    "name": "berth",
    "orm": "default",
    "workers": env.int("BERTH_TASK_WORKERS", default=1),
    "poll": 1,
    "timeout": 300,
    "retry": 360,  # above timeout: a task is handed out again only when its first run must be over
    "max_attempts": 5,
    "ack_failures": True,
    "catch_up": False,
    "save_limit": 500,
    "recycle": 2000,
    "label": "Tasks",
}
