"""Django app for the web pages. It connects live updates to signals."""

from django.apps import AppConfig
from django.db.models.signals import post_save


class WebConfig(AppConfig):
    name = "berth.server.web"
    label = "berth_web"

    def ready(self) -> None:
        from berth.server.web.live import announcer
        from pools import signals as pool_signals
        from pools.models import ScalingEvent
        from projects import signals as project_signals

        project_signals.workloads_changed.connect(announcer.workloads_changed, dispatch_uid="live workload")
        project_signals.tenants_changed.connect(announcer.tenants_changed, dispatch_uid="live tenants")
        pool_signals.changed.connect(announcer.pools_changed, dispatch_uid="live pools")
        post_save.connect(announcer.pools_changed, sender=ScalingEvent, dispatch_uid="live scaling")
