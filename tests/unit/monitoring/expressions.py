"""What the chart isthmus-monitoring asks of Prometheus: every expression of its dashboards and rules."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "isthmus-monitoring"
RULES = CHART / "files" / "rules.yaml"
DASHBOARDS = sorted((CHART / "files" / "dashboards").glob("*.json"))
RUNBOOKS = ROOT / "docs" / "runbooks"

_VARIABLES = {"$__rate_interval": "5m", "$namespace": ".*", "$partition": ".*"}
# What stands between a metric and its end; the order matters.
_NOT_METRICS = (
    r"#.*",
    r'"[^"]*"',
    r"\{[^}]*\}",
    r"\[[^\]]*\]",
    r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)",
    r"\boffset\s+\w+",
)
_WORDS = {"and", "or", "unless", "bool"}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.load(RULES.read_text(), yaml.CSafeLoader)["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def panels(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["panels"]
    return found


def of_dashboards() -> Iterator[tuple[str, str]]:
    """Where each expression of a dashboard stands, and the expression with values for Grafana's variables."""
    for path in DASHBOARDS:
        for panel in panels(path):
            for target in panel["targets"]:
                yield f"{path.stem}: {panel['title']}", with_values(target["expr"])


def with_values(expr: str) -> str:
    for variable, value in _VARIABLES.items():
        expr = expr.replace(variable, value)
    return expr


def everything() -> list[tuple[str, str]]:
    of_rules = [(str(it.get("alert", it.get("record"))), it["expr"]) for it in rules()]
    return [*of_dashboards(), *of_rules]


def metrics(expr: str) -> set[str]:
    """The metrics that an expression names."""
    for pattern in _NOT_METRICS:
        expr = re.sub(pattern, " ", expr)
    return {it for it in re.findall(r"[a-zA-Z_][\w:]*(?!\s*\(|[\w:])", expr) if it not in _WORDS}


def matched(expr: str) -> Iterator[tuple[str, str]]:
    """Each metric and each label by which its series are chosen."""
    for metric, matchers in re.findall(r"([a-zA-Z_][\w:]*)\{([^}]*)\}", expr):
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
            yield metric, label


def kept(expr: str) -> set[str]:
    """The labels by which an expression groups or joins."""
    clauses = re.findall(r"\b(?:by|on|group_left)\s*\(([^)]*)\)", expr)
    return {it.strip() for clause in clauses for it in clause.split(",") if it.strip()}
