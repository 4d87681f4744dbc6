"""Print how fair shares were computed."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from berth.cli.output import print_section
from berth.cli.text import safe

if TYPE_CHECKING:
    from berth.client.answers import ShareStory

UNITS = {"gpu": "GPUs", "cpu": "CPUs", "memory_mib": "memory"}


def tell_shares(stories: Iterable["ShareStory"]) -> None:
    for told in stories:
        for chapter in told.story:
            of = chapter.of if chapter.of == told.pool else f"{chapter.of} on {told.pool}"
            print_section(safe(f"{chapter.name}, of the {UNITS[chapter.resource]} of {of}"))
            for line in chapter.lines:
                print(f"  {safe(line)}")
