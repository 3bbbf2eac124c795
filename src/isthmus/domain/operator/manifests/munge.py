"""munged beside a daemon, where a cluster's parts know each other by munge."""

from typing import Final

from isthmus.domain.operator import authkeys
from isthmus.domain.operator.manifests import common
from isthmus.domain.operator.manifests.common import Manifest

_SOCKET: Final = "/run/munge"
_KEY: Final = "/run/secrets/munge"

# munged insists on a key that nobody else may read, and reads it once: with another key, it is started anew.
_PREPARE: Final = r"""
install -o munge -g munge -m 400 /run/secrets/munge/munge.key /etc/munge/munge.key
install -d -o munge -g munge -m 755 /run/munge /var/lib/munge /var/log/munge
"""
_FOLLOW: Final = r"""
(while [[ $(sha256sum < /run/secrets/munge/munge.key) == "$(sha256sum < /etc/munge/munge.key)" ]]; do sleep 2; done
 kill -TERM 1) &
"""
_RUN: Final = r"""
exec setpriv --reuid=munge --regid=munge --clear-groups munged --foreground
"""


def sidecar(image: str, *, follow: bool = True) -> Manifest:
    """Make the container, which runs as long as its pod.

    Without `follow`, it keeps its key until the pod is recreated.
    """
    return {
        "name": "munge",
        "image": image,
        "restartPolicy": "Always",
        "command": ["bash", "-euc", f"{_PREPARE}{_FOLLOW if follow else ''}{_RUN}"],
        "startupProbe": {
            "exec": {"command": ["munge", "-n"]},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
            "failureThreshold": 60,
        },
        "volumeMounts": [*common.mounts([("munge-key", _KEY)]), socket_mount(read_only=False)],
    }


def socket_mount(*, read_only: bool = True) -> Manifest:
    """Make the mount by which a daemon reaches munged."""
    return common.mounts([("munge-socket", _SOCKET)], read_only=read_only)[0]


def volumes(secret: str) -> list[Manifest]:
    """Make the volumes; the Secret holds munge.key."""
    items = [{"key": authkeys.MUNGE_FILE, "path": authkeys.MUNGE_FILE}]
    return [
        {"name": "munge-key", "secret": {"secretName": secret, "items": items, "defaultMode": 0o600}},
        {"name": "munge-socket", "emptyDir": {"medium": "Memory"}},
    ]
