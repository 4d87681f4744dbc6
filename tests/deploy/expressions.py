"""Extract metric and label names from PromQL."""

import re
from dataclasses import dataclass, field

STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{([^}]*)\}")
GROUPING = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
RANGE = re.compile(r"\[[^\]]*\]")
WORD = re.compile(r"(?<![\w.])([a-zA-Z_:][a-zA-Z0-9_:]*)(\s*\()?")
OPERATORS = {"and", "or", "unless", "offset", "bool", "inf", "nan"}


@dataclass
class Names:
    """Names in a PromQL expression: metrics with their selector labels, and grouping labels."""

    metrics: set[str] = field(default_factory=set)
    labels: dict[str, set[str]] = field(default_factory=dict)
    grouping: set[str] = field(default_factory=set)


def names_in(expression: str) -> Names:
    names_used = Names()
    text = STRING.sub('""', expression)
    for _, names in GROUPING.findall(text):
        names_used.grouping |= {name.strip() for name in names.split(",") if name.strip()}
    text = GROUPING.sub(" ", text)
    for metric, matchers in SELECTOR.findall(text):
        names_used.metrics.add(metric)
        labels = {re.split(r"[=!]", matcher)[0].strip() for matcher in matchers.split(",") if matcher.strip()}
        names_used.labels.setdefault(metric, set()).update(labels)
    text = RANGE.sub(" ", SELECTOR.sub(" ", text))
    for word, opens in WORD.findall(text):
        if not opens and word.lower() not in OPERATORS:
            names_used.metrics.add(word)
    return names_used
