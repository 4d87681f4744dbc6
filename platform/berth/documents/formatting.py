"""Format values as YAML, inline or as blocks."""

import json
import re

import yaml

LINE_WIDTH = 2**20
PLAIN_KEY = re.compile(r"(?!(?:true|false|null|yes|no|off|y|n)$)[a-z][a-z0-9_]*", re.ASCII)


def format_key(name: object, *, as_json: bool = False) -> str:
    """Return a key, quoted if a YAML 1.1 parser would not read it as text."""
    if not as_json and isinstance(name, str) and PLAIN_KEY.fullmatch(name):
        return name
    return format_inline(name, as_json=as_json)


def format_inline(value: object, *, as_json: bool = False) -> str:
    """Format the value on one line that is valid inside brackets. With `as_json`, format it as JSON."""
    if as_json:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and ("\n" in value or "\t" in value):
        return json.dumps(value, ensure_ascii=False)
    text = yaml.safe_dump(
        value, default_flow_style=True, width=LINE_WIDTH, allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("...\n").strip()


def format_below_key(value: object, indent: int, comment: str = "") -> str:
    """Format a value as the text that follows `key:`, including the comment on the key's line."""
    tail = f"  {comment}" if comment else ""
    if isinstance(value, str) and (mark := _block_indicator(value)):
        lines = value.removesuffix("\n").split("\n")
        inside = "\n".join(" " * (indent + 2) + line if line else "" for line in lines)
        return f" {mark}{tail}\n{inside}"
    if isinstance(value, dict) and value:
        return f"{tail}\n{format_block(value, indent + 2)}"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return f"{tail}\n{format_block(value, indent + 2)}"
    return f" {format_inline(value)}{tail}"


def format_block(value: object, indent: int) -> str:
    """Format a list or mapping as a block with the given indent."""
    text = yaml.safe_dump(
        value, default_flow_style=False, width=LINE_WIDTH, allow_unicode=True, sort_keys=False
    )
    return "\n".join(" " * indent + line if line else "" for line in text.rstrip("\n").split("\n"))


def format_item(value: object, indent: int) -> str:
    """Format a list item with its dash."""
    if not isinstance(value, dict) or not value:
        return " " * indent + "- " + format_inline(value)
    text = format_block(value, indent + 2)
    return " " * indent + "- " + text[indent + 2 :]


def _block_indicator(text: str) -> str:
    """Return the block scalar indicator for the text, or "" if a block would not preserve it."""
    lines = text.removesuffix("\n").split("\n")
    has_odd_edges = text.endswith("\n\n") or not lines[0] or lines[0].startswith((" ", "\t"))
    if len(lines) < 2 or has_odd_edges or not all(line.isprintable() for line in lines):
        return ""
    return "|" if text.endswith("\n") else "|-"
