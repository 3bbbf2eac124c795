"""Who may ask Slurm for what: the administrator's rules for namespaces and service accounts.

`domain.bridge.tenancy` decides by them, `bridge.policies` installs the kind.
"""

from typing import Annotated

from msgspec import Meta

from isthmus.model.base import Data, Kind
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import LabelSelector
from isthmus.model.schema import Rule, rules

GROUP = "isthmus.dev"
VERSION = "v1alpha1"

ANY = "*"
"""Among allowed values: every value."""

_Value = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[^\s,]+$")]
_DefaultValue = Annotated[str, Meta(max_length=256, pattern=r"^[^\s,*]*$")]


class Choice(Data, frozen=True):
    """What may be asked for, and what is taken where nothing is asked for."""

    default: _DefaultValue = ""
    """Taken where nothing is asked for. It is always allowed."""
    allowed: Annotated[tuple[_Value, ...], Meta(max_length=256)] = ()
    """What may be asked for; "*" allows everything (but never the user and group root, which have to be named)."""


# Who is limited to some values must be given one of them: asking for nothing must be no way around the limit.
_with_default = rules(
    Rule(
        "(has(self.default) && self.default != '') || (has(self.allowed) && '*' in self.allowed)",
        'set a default, or allow "*": a pod that requests nothing would get what is not allowed',
    )
)


_of_labels = rules(
    Rule(
        "!has(self.matchExpressions) ||"
        " self.matchExpressions.all(it, it.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",
        "an operator is In, NotIn, Exists or DoesNotExist",
    )
)


class BridgePolicySpec(Data, frozen=True):
    """Whom the policy applies to, and what they may request. Unset fields limit nothing, except as noted."""

    namespaces: Annotated[tuple[_Value, ...], Meta(max_length=1024)] = ()
    """The namespaces that it is for, by name."""
    namespace_selector: Annotated[LabelSelector, _of_labels] | None = None
    """The namespaces that it is for, by their labels; {} selects all. One that names the namespace goes first."""
    service_accounts: Annotated[tuple[_Value, ...], Meta(max_length=1024)] = ()
    """Only pods with one of these service accounts; empty means all. One that names the account goes first."""
    users: Annotated[Choice, _with_default] | None = None
    """Slurm users that jobs may run as. Not mentioned: nobody else than the bridge's own."""
    groups: Annotated[Choice, _with_default] | None = None
    """Groups that jobs may run as. Not mentioned: none but the user's own."""
    accounts: Annotated[Choice, _with_default] | None = None
    """Accounts that jobs may be charged to."""
    partitions: Annotated[Choice, _with_default] | None = None
    """Partitions that jobs may go to."""
    qos: Choice | None = None
    """Qualities of service that jobs may have."""
    reservations: Choice | None = None
    """Reservations that jobs may use."""
    mcs_labels: Choice | None = None
    """MCS labels that jobs may carry. Not mentioned: none but the bridge's own."""
    exclusive: bool | None = None
    """Whether jobs get whole nodes where nothing is asked for; not mentioned: as the bridge is configured."""
    enforce_exclusive: bool = False
    """Whether `exclusive` holds also for jobs that ask otherwise: they are refused."""
    priority: bool = False
    """Whether jobs may set their own priority, which passes over fair share."""


class BridgePolicy(Data, frozen=True):
    """What pods of some namespaces, or of some service accounts in them, may ask of Slurm."""

    spec: Annotated[
        BridgePolicySpec,
        rules(
            Rule(
                "has(self.namespaceSelector) || (has(self.namespaces) && size(self.namespaces) > 0)",
                "name namespaces, or give a namespaceSelector ({} selects all)",
            ),
            Rule(
                "!has(self.enforceExclusive) || !self.enforceExclusive || has(self.exclusive)",
                "set exclusive, the value that enforceExclusive enforces",
            ),
        ),
    ]
    metadata: ObjectMeta = ObjectMeta()


POLICIES = Kind(BridgePolicy, f"{GROUP}/{VERSION}", "bridgepolicies", "BridgePolicy", namespaced=False)
