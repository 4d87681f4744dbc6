"""Send one delivery on its channel."""

import smtplib
from datetime import datetime

from django.conf import settings
from django.core.mail import send_mail

from berth.core.spec.addresses import Channel, url_of
from projects.delivering import letters
from projects.delivering.destination import Refused, destination
from projects.delivering.http import NotTaken, post
from projects.models import Delivery


def send(delivery: Delivery, now: datetime) -> None:
    """Raises NotTaken, which knows whether it is of use to try again."""
    try:
        if delivery.channel == Channel.MAIL:
            _mail(delivery)
        else:
            _post(delivery, now)
    except Refused as refused:
        raise NotTaken(str(refused), for_good=True) from None
    except (OSError, smtplib.SMTPException) as error:
        raise NotTaken(f"{type(error).__name__}: {error}") from None
    except ValueError as error:  # a mailbox that no mail can be addressed to
        raise NotTaken(f"{type(error).__name__}: {error}", for_good=True) from None


def _mail(delivery: Delivery) -> None:
    if not settings.BERTH_SENDS_MAIL:
        raise NotTaken("no mail server is set (BERTH_EMAIL_URL)", for_good=True)
    words = delivery.content
    send_mail(letters.subject(words), letters.text(words), settings.DEFAULT_FROM_EMAIL, [delivery.to])


def _post(delivery: Delivery, now: datetime) -> None:
    to = destination(url_of(delivery.to), settings.BERTH_NOTIFY_NETWORKS)
    if delivery.channel == Channel.CHAT:
        post(to, letters.chat_body(delivery.content), {})
        return
    body = letters.body(delivery.content)
    signed = letters.signature(settings.BERTH_WEBHOOK_SECRET, body, int(now.timestamp()))
    post(to, body, {letters.SIGNATURE: signed, "X-Berth-Delivery": str(delivery.pk)})
