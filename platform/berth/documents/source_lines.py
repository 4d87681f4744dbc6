"""Line numbers of the values in YAML text, for error messages."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from berth.core.errors import Malformed
from berth.core.problems import join_path
from berth.documents.reading import SafeLoader
from berth.documents.strict import check_structure
from berth.documents.values import Location, Step, parse_location


@dataclass(frozen=True, slots=True)
class SourceLines:
    """Line number of each value in a text, keyed by path. Lines are numbered from 1."""

    lines: dict[str, int] = field(default_factory=dict)
    scalars: dict[Location, str] = field(default_factory=dict)  # source text of scalars, by location

    @classmethod
    def from_text(cls, text: str) -> "SourceLines":
        """Find the line number of each value in a YAML text.

        If the text cannot be parsed, the result is empty.
        """
        source_lines = cls()
        try:
            check_structure(text.encode())
            top = yaml.compose(text, Loader=SafeLoader)
        except (Malformed, yaml.YAMLError, ValueError, RecursionError):
            return source_lines
        for at, node, line in [] if top is None else _walk((), top, 1):
            source_lines.lines.setdefault(join_path(at), line)
            if isinstance(node, yaml.ScalarNode):
                source_lines.scalars[at] = node.value
        return source_lines

    def line_number(self, path: str) -> int | None:
        """Return the line of the value at the path, or of its nearest existing parent.

        Return None if there is neither.
        """
        if path in self.lines:
            return self.lines[path]
        at = parse_location(path)
        for length in range(len(at) - 1, 0, -1):
            if (line := self.lines.get(join_path(at[:length]))) is not None:
                return line
        return None


def _walk(at: Location, node: yaml.Node, line: int) -> Iterator[tuple[Location, yaml.Node, int]]:
    """Yield the location and node of each value, and the line of its key or list item."""
    yield at, node, line
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            step: Step = key.value if isinstance(key, yaml.ScalarNode) else "?"
            yield from _walk((*at, step), value, key.start_mark.line + 1)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _walk((*at, number), item, item.start_mark.line + 1)
