"""Which pods may request what from Slurm.

Our token can submit as any user, so without rules every author of a pod could. The administrator's BridgePolicies
say what a namespace, or a service account in it, may ask for; one policy holds for a pod, the one that names it
most exactly:

    names the service account  >  names the namespace  >  selects the namespace by labels;  then the first by name

Where none speaks of a namespace, nobody there runs as somebody else or under another security label, or sets a
priority. What else is free depends on `tenancy` in the configuration:

    open      account, partition, QOS and reservation are left to Slurm's own limits, as in slurm-bridge
    strict    jobs get the defaults, and no other
    auto      open as long as there is no policy at all; with the first one, strict
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, Literal

import msgspec

from isthmus.domain.bridge.joboptions import JobOptions
from isthmus.domain.kube import selectors
from isthmus.errors import Terminal
from isthmus.model.policy import ANY, BridgePolicy, BridgePolicySpec, Choice

_CHOICES: Final = {
    "user_id": ("users", "user-id"),
    "group_id": ("groups", "group-id"),
    "account": ("accounts", "account"),
    "partition": ("partitions", "partition"),
    "qos": ("qos", "qos"),
    "reservation": ("reservations", "reservation"),
    "mcs_label": ("mcs_labels", "mcs-label"),
}
"""By field of `JobOptions`: the field of the policy, and the annotation."""

_ONLY_BY_POLICY: Final = frozenset({"user_id", "group_id", "mcs_label"})
_NEVER_BY_STAR: Final = {"user_id": frozenset({"root", "0"}), "group_id": frozenset({"root", "0"})}
_FREE: Final = BridgePolicySpec()
_NAMED: Final = 3

Mode = Literal["auto", "open", "strict"]


class Tenancy(msgspec.Struct, frozen=True):
    """What holds where no policy does; `partition` is the one that the bridge gives to jobs that name none."""

    mode: Mode = "auto"
    partition: str = ""


AUTO: Final = Tenancy()


class Grant(msgspec.Struct, frozen=True):
    """What pods of one namespace and service account may ask for."""

    policy: str = ""
    """The policy that says so; empty where none does."""
    rules: BridgePolicySpec = _FREE
    warning: str = ""
    """What the author of a pod should know about it."""


def grant_for(
    policies: Iterable[BridgePolicy],
    *,
    namespace: str,
    namespace_labels: Mapping[str, str],
    service_account: str,
    tenancy: Tenancy = AUTO,
) -> Grant:
    """Find the policy that holds for a pod. Looks at every policy once, of which there are a few."""
    account = service_account or "default"
    policies = tuple(policies)
    fitting = [
        (_exactness(policy.spec, namespace, account), policy)
        for policy in policies
        if _covers(policy.spec, namespace, namespace_labels, account)
    ]
    if not fitting:
        if tenancy.mode == "strict" or (tenancy.mode == "auto" and policies):
            return Grant(rules=_defaults_only(tenancy), warning=_unruled(namespace, "jobs get the defaults only"))
        return Grant(warning=_unruled(namespace, "account, partition and QOS are free to choose"))
    _, found = min(fitting, key=lambda it: (*(not exact for exact in it[0]), it[1].metadata.name))
    return Grant(found.metadata.name, found.spec)


def idle(
    policies: Collection[BridgePolicy], namespaces: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, str]]:
    """Policies that hold for no pod, whatever its service account, each with the reason."""
    accounts = tuple(
        dict.fromkeys(("default", *(it for policy in policies for it in policy.spec.service_accounts)))
    )
    for policy in policies:
        mine = policy.spec.service_accounts or (*accounts, ANY)
        covered = [it for it, labels in namespaces.items() if _covers(policy.spec, it, labels, mine[0])]
        grants = (
            grant_for(policies, namespace=it, namespace_labels=namespaces[it], service_account=account).policy
            for it in covered
            for account in mine
        )
        if not covered:
            named = ", ".join(policy.spec.namespaces[:_NAMED])
            yield policy.metadata.name, f"there is no namespace {named}" if named else "it selects no namespace"
        elif policy.metadata.name not in (others := _until(policy.metadata.name, grants)):
            yield (
                policy.metadata.name,
                f"other policies override it in its namespaces: {', '.join(sorted(others))}",
            )


def _until(name: str, found: Iterator[str]) -> set[str]:
    """The names up to this one: most policies hold for the first pod that one looks at."""
    seen: set[str] = set()
    for it in found:
        seen.add(it)
        if it == name:
            break
    return seen


def apply(grant: Grant, options: JobOptions) -> JobOptions:
    """Fill in what the policy gives by itself; one error names everything that it does not allow."""
    filled: dict[str, object] = {}
    wrong: list[str] = []
    for field, (rule, annotation) in _CHOICES.items():
        choice: Choice | None = getattr(grant.rules, rule)
        asked: str | None = getattr(options, field)
        if asked is None:
            if choice and choice.default:
                filled[field] = choice.default
        elif choice is None:
            if field in _ONLY_BY_POLICY:
                wrong.append(f"{annotation} {asked!r} needs a BridgePolicy that allows it in spec.{_camel(rule)}")
        elif refused := [value for value in asked.split(",") if not _allows(choice, value, field)]:
            wrong.append(f"{annotation} {', '.join(map(repr, refused))} is not allowed, {_instead(choice)}")
    wrong += _not_allowed(grant.rules, options)
    if wrong:
        source = f"BridgePolicy {grant.policy}" if grant.policy else "no BridgePolicy applies to this namespace"
        raise Terminal(
            f"{'; '.join(wrong)} ({source})",
            remedy="request what is allowed, or have an administrator change the BridgePolicies",
        )
    if options.exclusive is None and grant.rules.exclusive is not None:
        filled["exclusive"] = grant.rules.exclusive
    return msgspec.structs.replace(options, **filled) if filled else options


def _not_allowed(rules: BridgePolicySpec, options: JobOptions) -> list[str]:
    wrong = []
    if options.priority is not None and not rules.priority:
        wrong.append("priority cannot be set, because it bypasses fair share (use nice)")
    if rules.enforce_exclusive and options.exclusive not in {None, rules.exclusive}:
        wrong.append(f"exclusive is always {str(rules.exclusive).lower()} here")
    return wrong


def _covers(spec: BridgePolicySpec, namespace: str, labels: Mapping[str, str], account: str) -> bool:
    if spec.service_accounts and account not in spec.service_accounts:
        return False
    return namespace in spec.namespaces or selectors.matches(spec.namespace_selector, labels)


def _exactness(spec: BridgePolicySpec, namespace: str, account: str) -> tuple[bool, bool]:
    return account in spec.service_accounts, namespace in spec.namespaces


def _allows(choice: Choice, value: str, field: str) -> bool:
    if value == choice.default or value in choice.allowed:
        return True
    return ANY in choice.allowed and value not in _NEVER_BY_STAR.get(field, ())


def _instead(choice: Choice) -> str:
    values = dict.fromkeys(value for value in (choice.default, *choice.allowed) if value and value != ANY)
    if ANY in choice.allowed:
        return "root must be listed by name"
    return f"only {', '.join(values)}" if values else "nor is any other"


def _defaults_only(tenancy: Tenancy) -> BridgePolicySpec:
    """Allow only what a job gets by default; naming the default partition is allowed, too."""
    nothing = Choice()
    partitions = Choice(tenancy.partition, tuple(filter(None, tenancy.partition.split(","))))
    return BridgePolicySpec(accounts=nothing, partitions=partitions, qos=nothing, reservations=nothing)


def _unruled(namespace: str, what: str) -> str:
    return (
        f"no BridgePolicy applies to namespace {namespace}: {what}; jobs run as the bridge's own Slurm user, and"
        " user-id, group-id, mcs-label and priority are refused"
    )


def _camel(field: str) -> str:
    head, *rest = field.split("_")
    return head + "".join(part.title() for part in rest)
