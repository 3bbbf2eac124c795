"""Where the receivers of a policy are: their addresses are read from Secrets, which are followed one by one."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from isthmus.health.notifications import Addressed
from isthmus.model.health import HealthPolicy, SecretKey
from isthmus.model.meta import Key
from isthmus.runtime.references import Asker, NotReadYet, References


@dataclass(eq=False)
class Receivers:
    references: References
    wake: Callable[[Key], None]

    def of(self, policy: HealthPolicy | None, cluster: Key) -> Addressed:
        if policy is None:
            return {}
        namespace = policy.metadata.namespace
        return {
            it.name: (it, partial(self._address, namespace, it.url_secret, cluster)) for it in policy.spec.receivers
        }

    def _address(self, namespace: str, reference: SecretKey | None, cluster: Key) -> str:
        if reference is None:
            return ""
        try:
            secret = self.references.secret(Key(namespace, reference.name), Asker(self.wake, cluster))
        except NotReadYet:
            return ""
        return secret.data.get(reference.key, b"").decode(errors="replace").strip() if secret else ""
