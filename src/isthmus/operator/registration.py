"""By which certificate the API server trusts our webhooks, which the chart registers.

Only writes that change the specification of one of our kinds wait for us, and deletion in the foreground of what is
drained first. With every replica of ours dead these are refused; status, scale, labels, finalizers and the usual
deletion go on, so whatever there is can be used and taken away.
"""

from collections.abc import Sequence

from isthmus.kube.client import Client
from isthmus.operator import crds
from isthmus.runtime.certkeeper import CertificateKeeper, Place
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.trust import DEFINITIONS, MUTATING, VALIDATING, Target


def certificates(client: Client, place: Place, *, metrics: Metrics, hosts: Sequence[str] = ()) -> CertificateKeeper:
    """Make the keeper of the certificates: for the Service, and for other `hosts` that lead to it."""
    targets = [Target(MUTATING, place.name), Target(VALIDATING, place.name)]
    targets += [Target(DEFINITIONS, name) for name in crds.converted()]
    return CertificateKeeper.of_service(client, place, targets=targets, metrics=metrics, hosts=hosts)
