"""The policy of a cluster: which HealthPolicy it is, and what it says about a finding.

Rules are tried in order, first the policy's own, then the built-in ones:

    [user_problem]                  drain: no repair helps against what a user left behind
    check or device for a drain     repair
    check that asks for a comment   comment
    any other check or device       record
    prolog, epilog, healthcheck,
    condition, notReady             repair
    maintenance                     drain
    human                           record
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from fnmatch import translate
from functools import lru_cache
from typing import Final, Literal, get_args

import msgspec

from isthmus.domain.health.reasons import USER_PROBLEM
from isthmus.model.health import Finding, HealthPolicy, HealthPolicySpec, LadderStep, PolicyRule, Rung
from isthmus.model.meta import Key

Reaction = Literal["ignore", "record", "comment", "drain", "repair"]

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhd])", re.ASCII)
_LATEST: Final = datetime.max.replace(tzinfo=UTC)


class LadderRung(msgspec.Struct, frozen=True):
    rung: Rung
    timeout: float
    """In seconds, as all times here."""


class Rule(msgspec.Struct, frozen=True):
    """What is done about a finding."""

    action: Reaction
    confirmations: int = 1
    job_deadline: float | None = None
    ladder: tuple[LadderRung, ...] = ()

    @property
    def shuts(self) -> bool:
        """Whether the node is to get no more jobs."""
        return self.action in {"drain", "repair"}


class Policy(msgspec.Struct, frozen=True):
    """A HealthPolicy, read once for all decisions: patterns compiled, times in seconds."""

    spec: HealthPolicySpec
    rules: tuple[tuple[Callable[[Finding], bool], Rule], ...]
    built_in: Mapping[Reaction, Rule]
    ladder: tuple[LadderRung, ...]
    healthy_delay: float
    test_timeout: float
    storm_within: float
    storm_cooldown: float

    def rule_for(self, finding: Finding) -> Rule:
        """What is done about a finding: by the first rule that matches."""
        return next((rule for matches, rule in self.rules if matches(finding)), self.built_in[_built_in(finding)])


@lru_cache(maxsize=64)
def compiled(spec: HealthPolicySpec) -> Policy:
    """Read a policy. The same one is read once."""
    storm, ladder = spec.limits.storm, _ladder(spec.ladder)
    return Policy(
        spec=spec,
        rules=tuple((_matcher(it), _rule(it, ladder)) for it in spec.rules),
        built_in={it: Rule(it, ladder=ladder) for it in get_args(Reaction)},
        ladder=ladder,
        healthy_delay=seconds(spec.healthy_delay),
        test_timeout=seconds(spec.test_timeout),
        storm_within=seconds(storm.within),
        storm_cooldown=seconds(storm.cooldown),
    )


def seconds(text: str) -> float:
    """Read a duration such as 90s, 1h30m or 7d; the schema has checked its form."""
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def candidates(policies: Iterable[HealthPolicy], cluster: Key) -> tuple[HealthPolicy, ...]:
    """All that claim a cluster with the same right, the oldest first; more than one is a mistake."""
    near = sorted(
        (it for it in policies if it.metadata.namespace == cluster.namespace),
        key=lambda it: (it.metadata.creation_timestamp or _LATEST, it.metadata.name),
    )
    named = tuple(it for it in near if it.spec.slurm_cluster_ref_name == cluster.name)
    return named or tuple(it for it in near if not it.spec.slurm_cluster_ref_name)


def governing(policies: Iterable[HealthPolicy], cluster: Key) -> HealthPolicy | None:
    """The policy of a cluster: one that names it, else one for its whole namespace; of several, the oldest."""
    return next(iter(candidates(policies, cluster)), None)


def conflict(policy: HealthPolicy, policies: Iterable[HealthPolicy], cluster: Key) -> str:
    """Why a policy does not count for a cluster that it claims; empty if it counts, or claims another."""
    first, *others = candidates(policies, cluster) or (policy,)
    if all(it.metadata.key != policy.metadata.key for it in others):
        return ""
    return (
        f"HealthPolicy {first.metadata.name} is older and governs cluster {cluster.name};"
        " delete one of them, or set slurmClusterRefName to different clusters"
    )


def _ladder(steps: Iterable[LadderStep]) -> tuple[LadderRung, ...]:
    return tuple(LadderRung(it.rung, seconds(it.timeout)) for it in steps)


def _rule(rule: PolicyRule, ladder: tuple[LadderRung, ...]) -> Rule:
    return Rule(
        rule.action,
        confirmations=rule.confirmations,
        job_deadline=None if rule.job_deadline is None else seconds(rule.job_deadline),
        ladder=ladder if rule.ladder is None else _ladder(rule.ladder),
    )


def _matcher(rule: PolicyRule) -> Callable[[Finding], bool]:
    match = rule.match
    sources = frozenset(match.sources)
    checks = re.compile("|".join(map(translate, match.checks))) if match.checks else None

    def matches(finding: Finding) -> bool:
        return (
            (not sources or finding.source in sources)
            and (checks is None or checks.match(finding.check) is not None)
            and match.evidence in finding.evidence
        )

    return matches


def _built_in(finding: Finding) -> Reaction:
    match finding.source:
        case "human":
            return "record"
        case "check" | "device" if finding.wants != "drain":
            return "comment" if finding.wants else "record"
        case "maintenance":
            return "drain"
    return "drain" if USER_PROBLEM in finding.evidence else "repair"
