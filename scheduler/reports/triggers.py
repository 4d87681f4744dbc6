"""Titles of the triggers that start scheduling cycles."""

from berth.core.wording.words import token_to_words

TRIGGER_TITLES = {
    "": "A change",
    "wake": "A change",
    "tick": "Regular interval",
    "start": "Start of the scheduler",
    "reconnected": "Reconnection to the database",
}


def describe_trigger(trigger: str) -> str:
    """Return a title for the trigger of a cycle, such as "Workload changed"."""
    return TRIGGER_TITLES.get(trigger) or f"{token_to_words(trigger)} changed"
