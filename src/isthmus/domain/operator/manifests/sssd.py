"""SSSD on login nodes: users of a directory, for a LoginSet that names the Secret of an sssd.conf.

    sssd-conf    Secret    /run/secrets/sssd    the file; SSSD starts again when it changes
    sss          memory    /var/lib/sss         its sockets, by which the login container asks it

Our images have no SSSD. A LoginSet of slurm-operator's chart names a Secret all the same, whether or not users are
in a directory; so an image without it locks nobody out, and a condition reports it.
"""

from collections.abc import Iterable
from typing import Final

from isthmus.domain.kube import conditions
from isthmus.domain.operator.manifests import common
from isthmus.domain.operator.manifests.common import Manifest
from isthmus.model.meta import Condition
from isthmus.model.pod import Pod
from isthmus.model.slinky import KeyReference

AVAILABLE: Final = "SssdAvailable"
"""The condition of a LoginSet that names an sssd.conf."""

CONTAINER: Final = "sssd"
STATE: Final = "/var/lib/sss"
NOT_THERE: Final = "sssdConfRef is set, but the image has no sssd: use an image that has it"

_CONF: Final = "/run/secrets/sssd"

# Kubelet reports an end, and nothing that a container prints while it runs: so it ends once, and then stays idle.
_START: Final = rf"""
if ! command -v sssd > /dev/null; then
    echo '{NOT_THERE}' | tee /dev/termination-log >&2
    if mkdir {STATE}/absent 2> /dev/null; then exit 1; fi
    trap 'exit 143' TERM
    sleep infinity &
    wait "$!"
fi
install -d -m 755 {STATE}/{{pipes,mc,pubconf,gpo_cache,deskprofile}} /etc/sssd
install -d -m 700 {STATE}/{{db,keytabs,secrets,pipes/private}}
install -m 600 {_CONF}/sssd.conf /etc/sssd/sssd.conf
(while [[ $(sha256sum < {_CONF}/sssd.conf) == "$(sha256sum < /etc/sssd/sssd.conf)" ]]; do sleep 2; done
 kill -TERM 1) &
exec "$(command -v sssd)" -i --logger=stderr
"""


def sidecar(image: str) -> Manifest:
    """Make the container, beside that of the logins."""
    return {
        "name": CONTAINER,
        "image": image,
        "restartPolicy": "Always",
        "command": ["bash", "-euc", _START],
        "volumeMounts": [
            *common.mounts([("sssd-conf", _CONF)]),
            *common.mounts([("sss", STATE)], read_only=False),
        ],
    }


def mount() -> Manifest:
    """Make the mount by which others ask it."""
    (made,) = common.mounts([("sss", STATE)])
    return made


def volumes(reference: KeyReference) -> list[Manifest]:
    items = [{"key": reference.key or "sssd.conf", "path": "sssd.conf"}]
    secret = {"secretName": reference.name, "items": items, "defaultMode": 0o600}
    return [{"name": "sssd-conf", "secret": secret}, {"name": "sss", "emptyDir": {"medium": "Memory"}}]


def condition(pods: Iterable[Pod]) -> Condition | None:
    """Whether SSSD runs in these pods; None while that is not known."""
    statuses = [it for pod in pods for it in pod.status.init_container_statuses if it.name == CONTAINER]
    ends = [end for it in statuses for end in (it.state.terminated, it.last_state.terminated) if end]
    if any(NOT_THERE in end.message for end in ends):
        return conditions.no(AVAILABLE, "NotInImage", NOT_THERE)
    if statuses and all(it.ready for it in statuses):
        return conditions.yes(AVAILABLE, "Running", "SSSD runs in every login pod")
    return None
