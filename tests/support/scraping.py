"""Request /metrics as Prometheus does."""

from django.conf import settings
from django.test import Client


def scraped() -> str:
    answer = Client().get("/metrics", headers={"Authorization": f"Bearer {settings.BERTH_METRICS_TOKEN}"})
    assert answer.status_code == 200, answer.content
    return answer.content.decode()
