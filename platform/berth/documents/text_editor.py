"""Edit the lines of YAML text at the positions of its parsed nodes."""

import re
from collections.abc import Sequence
from typing import Any

import yaml

from berth.documents.formatting import format_below_key, format_inline, format_item, format_key
from berth.documents.values import Location, Step, remove_value, set_value, value_at

Entry = tuple[yaml.Node, yaml.Node]  # key and value of a mapping entry; for a list item, the item twice
COMMENT = re.compile(r"(?:^|\s)(#.*)$")


class TextEditor:
    """Editor for a YAML text. Each edit returns the new text."""

    def __init__(self, text: str, order: Sequence[str]) -> None:
        self.text, self.order = text, order

    def put(self, top: yaml.Node | None, at: Location, value: object) -> str:
        """Set the value at a location, creating missing parents. Return the new text."""
        node = top
        for depth, step in enumerate(at):
            entry = None if node is None else _find_entry(node, step)
            rest = at[depth + 1 :]
            if node is None or entry is None:
                return self._insert(node, step, set_value(None, rest, value))
            if not rest or _is_null(entry[1]):
                return self._replace(node, entry, set_value(None, rest, value))
            node = entry[1]
        raise KeyError(at)

    def rename(self, top: yaml.Node, at: Location, name: str) -> str:
        """Rename the key at a location. Return the new text."""
        parent = top
        for step in at[:-1]:
            parent = _get_entry(parent, step)[1]
        key = _get_entry(parent, at[-1])[0]
        written = format_key(name, as_json=getattr(key, "style", "") == '"')
        return self._replace_range(key.start_mark.index, key.end_mark.index, written)

    def remove(self, top: yaml.Node, data: Any, at: Location) -> str:
        """Remove the value at a location, and parents that become empty. Return the new text."""
        while len(at) > 1 and isinstance(at[-2], str) and value_at(remove_value(data, at), at[:-1]) is None:
            at = at[:-1]
        parent = top
        for step in at[:-1]:
            parent = _get_entry(parent, step)[1]
        entries = _entries(parent)
        index = entries.index(_get_entry(parent, at[-1]))
        if len(entries) == 1:
            nothing = "{}" if isinstance(parent, yaml.MappingNode) else "[]"
            start = parent.start_mark.index
            return self._replace_range(start, self._node_end(parent), nothing if len(at) > 1 else "")
        if _is_flow(parent):
            return self._remove_flow_entry(entries, index)
        return self._remove_block_entry(entries, index)

    def _remove_flow_entry(self, entries: list[Entry], index: int) -> str:
        """Remove an entry and one adjacent comma."""
        if index + 1 < len(entries):
            return self._replace_range(
                entries[index][0].start_mark.index, entries[index + 1][0].start_mark.index, ""
            )
        return self._replace_range(
            self._node_end(entries[index - 1][1]), self._node_end(entries[index][1]), ""
        )

    def _remove_block_entry(self, entries: list[Entry], index: int) -> str:
        name, value = entries[index]
        start, end = name.start_mark.index, self._entry_end(entries[index])
        before = self.text[self._line_start(start) : start].strip()
        if before == ("-" if name is value else ""):
            return self._replace_range(self._line_start(start), self._line_end(end) + 1, "")
        following = entries[index + 1][0].start_mark.index  # the removed entry was the first key after a dash
        return self._replace_range(start, end if "#" in self.text[end:following] else following, "")

    def _insert(self, node: yaml.Node | None, step: Step, value: object) -> str:
        if node is None:
            return self._add_line(len(self.text.rstrip()), f"{format_key(step)}:{format_below_key(value, 0)}")
        if isinstance(node, yaml.SequenceNode):
            return self._append(node, value)
        if not isinstance(node, yaml.MappingNode):
            raise KeyError(step)
        if node.flow_style:
            as_json = bool(node.value) and node.value[0][0].style == '"'
            line = f"{format_key(step, as_json=as_json)}: {format_inline(value, as_json=as_json)}"
            return self._add_to_flow(node, [value for _, value in node.value], line)
        first = node.value[0][0].start_mark
        line = f"{' ' * first.column}{format_key(step)}:{format_below_key(value, first.column)}"
        predecessor = self._preceding_entry(node, step)
        start = self._line_start(first.index)
        if predecessor is None and not self.text[start : first.index].strip():
            return self._replace_range(start, start, f"{line}\n")
        return self._add_line(self._entry_end(predecessor or node.value[0]), line)

    def _preceding_entry(self, node: yaml.MappingNode, step: Step) -> Entry | None:
        """Return the entry after which a key belongs, or None if the key belongs first."""
        key_positions = {key: place for place, key in enumerate(self.order)}
        if step not in key_positions:
            return _entries(node)[-1]
        placed = [
            (key_positions[name], entry)
            for entry in _entries(node)
            if (name := _name(entry[0])) in key_positions
        ]
        earlier = [(place, entry) for place, entry in placed if place < key_positions[str(step)]]
        return max(earlier, key=lambda pair: pair[0])[1] if earlier else None

    def _append(self, node: yaml.SequenceNode, value: object) -> str:
        if node.flow_style:
            return self._add_to_flow(node, node.value, format_inline(value))
        start = node.value[0].start_mark.index
        column = self.text.rindex("-", 0, start) - self._line_start(start)
        return self._add_line(self._node_end(node), format_item(value, column))

    def _add_to_flow(self, node: yaml.Node, inside: list[yaml.Node], item_text: str) -> str:
        if not inside:
            return self._replace_range(node.start_mark.index + 1, node.end_mark.index - 1, item_text)
        end = self._node_end(inside[-1])
        return self._replace_range(end, end, f", {item_text}")

    def _replace(self, parent: yaml.Node, entry: Entry, value: object) -> str:
        name, node = entry
        start, end = node.start_mark.index, self._node_end(node)
        if _is_flow(parent) or name is node:
            if not _is_flow(parent) and "\n" in self.text[start:end]:
                raise KeyError("cannot replace a multi-line list item")
            return self._replace_range(
                start, end, format_inline(value, as_json=getattr(name, "style", "") == '"')
            )
        colon = self.text.index(":", name.end_mark.index) + 1
        head = self.text[colon : self._line_end(colon)]
        text = format_below_key(value, name.start_mark.column)
        if "\n" not in self.text[colon:end] and "\n" not in text:
            return self._replace_range(min(start, end), end, text[1:] if start > colon else text)
        single = "\n" not in self.text[colon:end]
        comment = COMMENT.search(self.text[end : self._line_end(end)] if single else head)
        replaced_end = self._line_end(end) if single else end
        return self._replace_range(
            colon,
            replaced_end,
            format_below_key(value, name.start_mark.column, comment[1] if comment else ""),
        )

    def _replace_range(self, start: int, end: int, replacement: str) -> str:
        return self.text[:start] + replacement + self.text[end:]

    def _add_line(self, after: int, line: str) -> str:
        end = self._line_end(after)
        head_text = self.text[:end]
        return f"{head_text}{chr(10) if head_text else ''}{line}{self.text[end:] or chr(10)}"

    def _entry_end(self, entry: Entry) -> int:
        return max(self._node_end(entry[0]), self._node_end(entry[1]))

    def _node_end(self, node: yaml.Node) -> int:
        """Return the index after a node's last character. PyYAML's end mark may lie after later comments."""
        if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            return self._entry_end(_entries(node)[-1])
        start, end = node.start_mark.index, node.end_mark.index
        return int(start + len(self.text[start:end].rstrip()))

    def _line_start(self, index: int) -> int:
        return self.text.rfind("\n", 0, index) + 1

    def _line_end(self, index: int) -> int:
        end = self.text.find("\n", index)
        return len(self.text) if end < 0 else end


def _entries(node: yaml.Node) -> list[Entry]:
    if isinstance(node, yaml.MappingNode):
        return list(node.value)
    return [(item, item) for item in node.value] if isinstance(node, yaml.SequenceNode) else []


def _find_entry(node: yaml.Node, step: Step) -> Entry | None:
    entries = _entries(node)
    if isinstance(step, int):
        return entries[step] if isinstance(node, yaml.SequenceNode) and step < len(entries) else None
    return next((entry for entry in entries if _name(entry[0]) == step), None)


def _get_entry(node: yaml.Node, step: Step) -> Entry:
    entry = _find_entry(node, step)
    if entry is None:
        raise KeyError(step)
    return entry


def _is_flow(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def _name(node: yaml.Node) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"
