"""Whether the bridge runs, is believed by Kubernetes and Slurm, and gets nodes that Kubernetes can use."""

import re
from collections.abc import Iterator
from typing import Final

from isthmus.domain.bridge import tenancy
from isthmus.domain.bridge.explain import ago
from isthmus.domain.diagnosis.facts import BridgeFacts, ClusterFacts, Facts, SecretFact
from isthmus.domain.diagnosis.finding import Finding, Fix
from isthmus.domain.diagnosis.known import Known, about_pod
from isthmus.domain.diagnosis.pods import check_pods
from isthmus.domain.languages.prose import some
from isthmus.model.meta import Key

_NAMED: Final = 3
_DUE_S: Final = 7 * 86400.0
"""Seconds before its end in which a certificate should have been renewed: that is done at a third of its life."""
_TOKEN_DUE_S: Final = 86400.0
_HOST: Final = re.compile(r"https?://[^/.:]+\.([^/.:]+)")
_SLURM_PARTS: Final = frozenset({"scheduler", "controllers", "all"})


def check_bridging(facts: Facts) -> Iterator[Finding]:
    """Check each installation, and then what they have in common."""
    yield from _unserved(facts)
    for bridge in facts.bridges or ():
        found = [*_token(bridge), *_webhooks(bridge), *_certificate(bridge)]
        yield from found
        yield from _pods(bridge, facts, found)
        yield from _nodes(bridge, facts)
    yield from _devices(facts)
    yield from _policies(facts)
    yield from _returned(facts)


def _unserved(facts: Facts) -> Iterator[Finding]:
    if facts.bridges is None or facts.bridges or not facts.unserved:
        return
    yield Finding(
        area="bridge",
        what=f"{len(facts.unserved)} pods wait for Slurm, and no bridge is installed",
        where=f"pods {some(facts.unserved, _NAMED)}",
        why="their schedulerName is the bridge's, so no other scheduler places them",
        remedy=(
            'install it: helm install slurm-bridge "$(isthmus chart path slurm-bridge)" --namespace slurm',
            "or let Kubernetes place them: recreate them without schedulerName",
        ),
    )


def _token(bridge: BridgeFacts) -> Iterator[Finding]:
    token = bridge.token
    if token is None or not (_ended(token) or _ends(token, _TOKEN_DUE_S)):
        return
    ended = _ended(token)
    yield Finding(
        area="auth",
        what=f"the bridge's token for Slurm {token.trouble or _when(token)}",
        where=f"Secret {token.key}",
        why="slurmrestd refuses the bridge without a valid token: no pod gets a job, and no job is ended",
        remedy=(
            "a Token renews it by itself: examples/operator/token-for-bridge.yaml",
            f"or write a new one into the Secret (scontrol token): kubectl edit {_named('secret', token.key)}",
        ),
        grave=ended,
        subjects=tuple(about_pod(it) for it in bridge.pods if it.component in _SLURM_PARTS) if ended else (),
    )


def _webhooks(bridge: BridgeFacts) -> Iterator[Finding]:
    """Check that the API server reaches the webhooks, and believes them."""
    if not bridge.webhooks:
        return
    answering = [it for it in bridge.pods if it.component in {"admission", "all"} and it.ready]
    if not answering:
        yield Finding(
            area="bridge",
            what="no webhook of the bridge is ready: new pods for Slurm are refused",
            where=f"Deployment {bridge.key.namespace}/{bridge.key.name}-admission",
            why="the API server asks the webhooks about such pods, and does not create them without an answer",
            remedy=(
                f"kubectl get pods -n {bridge.key.namespace} -l app.kubernetes.io/name={bridge.key.name}",
                _logs(bridge, "admission"),
            ),
        )
    strange = [it for it in bridge.webhooks if not it.trusts]
    if strange:
        yield Finding(
            area="bridge",
            what="the API server does not trust the webhooks' certificate: new pods for Slurm are refused",
            where=some(f"{it.kind} {it.name}" for it in strange),
            why=f"its caBundle differs from ca.crt in the Secret {_secret(bridge)}: somebody replaced one of them",
            remedy=("isthmus doctor --fix",),
            fix=Fix("trust", f"copy the CA of {bridge.key.name} into its webhooks", str(bridge.key)),
        )


def _certificate(bridge: BridgeFacts) -> Iterator[Finding]:
    certificate = bridge.certificate
    if certificate is None or not bridge.webhooks or not (_ended(certificate) or _ends(certificate, _DUE_S)):
        return
    yield Finding(
        area="bridge",
        what=f"the certificate of the webhooks {certificate.trouble or _when(certificate)}",
        where=f"Secret {certificate.key}",
        why="the bridge renews it when a third of its life is left, and has not: it may not write the Secret",
        remedy=(_logs(bridge, "admission"),),
        grave=_ended(certificate),
    )


def _pods(bridge: BridgeFacts, facts: Facts, found: list[Finding]) -> Iterator[Finding]:
    """The pods of a bridge start, or do not, for the same reasons as those of clusters."""
    like = ClusterFacts(key=bridge.key, kind="bridge", pods=bridge.pods)
    told = list(check_pods(like, facts, Known(like, found)))
    yield from told
    silent = [
        part
        for part in ("scheduler", "controllers")
        if not any(it.ready for it in bridge.pods if it.component in {part, "all"})
    ]
    if silent and not told and not found:
        yield Finding(
            area="bridge",
            what=f"no {' and no '.join(silent)} of the bridge is ready",
            where=f"pods of {bridge.key}",
            why="it is ready while it is in touch with Kubernetes and Slurm",
            remedy=(
                "ask Slurm as the bridge does: isthmus bridge status",
                _logs(bridge, silent[0]),
            ),
        )


def _nodes(bridge: BridgeFacts, facts: Facts) -> Iterator[Finding]:
    """Compare the labels of nodes with what Slurm has, where the bridge's Slurm is one of those examined."""
    cluster = _cluster(bridge, facts)
    if cluster is None or cluster.nodes is None:
        return
    missing = sorted(set(facts.external) - {it.name for it in cluster.nodes})
    if missing:
        yield Finding(
            area="bridge",
            what=f"{some(missing, _NAMED)} labelled as external, but not in Slurm: pods are not placed there",
            where=f"Slurm of {cluster.key}",
            why="the controllers of the bridge register such nodes, with what pods outside Slurm leave of them",
            remedy=(
                _logs(bridge, "controllers"),
                f"see whether Slurm has room for them (MaxNodeCount): isthmus cluster status {cluster.key.name}",
            ),
            grave=False,
        )


def _devices(facts: Facts) -> Iterator[Finding]:
    """Find nodes whose devices the two sides count differently: pods with claims are kept away from them."""
    if facts.miscounted:
        names = sorted(facts.miscounted)
        yield Finding(
            area="bridge",
            what=f"Slurm counts the devices of {some(names, _NAMED)} differently from their drivers",
            where=some((f"node {it}" for it in names), _NAMED),
            why=facts.miscounted[names[0]],
            remedy=(
                f"compare: kubectl get resourceslices --field-selector spec.nodeName={names[0]}",
                f"with: scontrol show node {names[0]}",
            ),
            grave=False,
        )


def _policies(facts: Facts) -> Iterator[Finding]:
    """Find BridgePolicies that hold for nobody."""
    if not facts.namespaces:
        return
    for name, why in tenancy.idle(facts.bridge_policies, facts.namespaces):
        yield Finding(
            area="bridge",
            what=f"BridgePolicy {name} has no effect",
            where=f"BridgePolicy {name}",
            why=why,
            remedy=(f"correct what it selects: kubectl edit bridgepolicy {name}",),
            grave=False,
        )


def _returned(facts: Facts) -> Iterator[Finding]:
    """Check that no allocation went back."""
    if not facts.returned:
        return
    yield Finding(
        area="bridge",
        what=f"{len(facts.returned)} allocations were returned to Slurm in the last hour",
        where=", ".join(f"pod {it.pod}" for it in facts.returned[:_NAMED]),
        why="; ".join(it.why for it in facts.returned[:_NAMED]),
        remedy=(
            "see what occupies the named node: kubectl describe node NODE",
            "keep pods that Slurm does not place off its nodes: config.taint=NoSchedule of the chart slurm-bridge",
        ),
        grave=False,
    )


def _cluster(bridge: BridgeFacts, facts: Facts) -> ClusterFacts | None:
    """The cluster whose slurmrestd a bridge asks: by the namespace in its URL, of several by its name."""
    match = _HOST.match(bridge.slurm)
    near = [it for it in facts.clusters if match and it.key.namespace == match[1]]
    named = [it for it in near if f"//{it.controller}-" in bridge.slurm]
    return near[0] if len(near) == 1 else named[0] if len(named) == 1 else None


def _named(kind: str, key: Key) -> str:
    return f"-n {key.namespace} {kind} {key.name}"


def _logs(bridge: BridgeFacts, part: str) -> str:
    return f"kubectl logs -n {bridge.key.namespace} -l app.kubernetes.io/component={part} --tail=20"


def _secret(bridge: BridgeFacts) -> str:
    return str(bridge.certificate.key) if bridge.certificate else "of the webhooks"


def _ended(secret: SecretFact) -> bool:
    return bool(secret.trouble) or (secret.left is not None and secret.left <= 0)


def _ends(secret: SecretFact, within: float) -> bool:
    return secret.left is not None and secret.left < within


def _when(secret: SecretFact) -> str:
    left = secret.left or 0.0
    return f"expired {ago(-left)} ago" if left <= 0 else f"expires in {ago(left)}"
