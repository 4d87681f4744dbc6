"""Prediction for the copy of an array's pending tasks that a smallest change offers."""

from urllib.parse import urlsplit

from django.http import QueryDict

from berth.core.errors import BerthError
from projects.actor import Actor
from projects.services import arrays
from scheduler.web.submit.array_copy import find_array_copy
from scheduler.web.submit.document_presets import copy_name
from scheduler.web.submit.verdict import build_verdict


def describe_copy(actor: Actor, url: str) -> str:
    """Return text such as "1 of 73 tasks would start immediately, 72 would be queued".

    The text describes the copy of an array that the link `url` opens. Return "" if the link opens no copy, or
    if the prediction fails.
    """
    copy = find_array_copy(actor, QueryDict(urlsplit(url).query))
    if copy is None:
        return ""
    document = {**copy.document, "name": copy_name(copy.array)}
    try:
        _, predicted = arrays.predict(actor=actor, document=document)
    except BerthError:
        return ""
    return build_verdict(predicted.first_task, predicted).title
