"""Send one delivery through its channel."""

import smtplib
from datetime import datetime

from django.conf import settings
from django.core.mail import send_mail

from berth.core.spec.values.addresses import Channel, webhook_url
from projects.delivering import rendering
from projects.delivering.destination import ForbiddenAddress, resolve_destination
from projects.delivering.http import DeliveryError, post
from projects.models import Delivery


def send(delivery: Delivery, now: datetime) -> None:
    """Send a delivery. Raises DeliveryError if it fails."""
    try:
        if delivery.channel == Channel.MAIL:
            _send_mail(delivery)
        else:
            _post_webhook(delivery, now)
    except ForbiddenAddress as rejected:
        raise DeliveryError(str(rejected), permanent=True) from None
    except (OSError, smtplib.SMTPException) as error:
        raise DeliveryError(f"{type(error).__name__}: {error}") from None
    except ValueError as error:  # an invalid email address
        raise DeliveryError(f"{type(error).__name__}: {error}", permanent=True) from None


def _send_mail(delivery: Delivery) -> None:
    if not settings.BERTH_SENDS_MAIL:
        raise DeliveryError(
            "no mail server is configured. Ask an admin to set BERTH_EMAIL_URL", permanent=True
        )
    content = delivery.content
    send_mail(
        rendering.subject(content), rendering.plain_text(content), settings.DEFAULT_FROM_EMAIL, [delivery.to]
    )


def _post_webhook(delivery: Delivery, now: datetime) -> None:
    to = resolve_destination(webhook_url(delivery.to), settings.BERTH_NOTIFY_NETWORKS)
    if delivery.channel == Channel.CHAT:
        post(to, rendering.chat_body(delivery.content), {})
        return
    body = rendering.body(delivery.content)
    signed = rendering.body_signature(settings.BERTH_WEBHOOK_SECRET, body, int(now.timestamp()))
    post(to, body, {rendering.SIGNATURE: signed, "X-Berth-Delivery": str(delivery.pk)})
