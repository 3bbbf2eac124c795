"""What a bare Kubernetes lacks: names (CoreDNS), storage, and the label of its control-plane node."""

import secrets
import socket
import string
import struct
import time
from pathlib import Path

from isthmus.errors import Terminal
from isthmus.local import shell
from isthmus.local.addresses import Addresses

_MANIFESTS = Path(__file__).parent / "manifests"
_KUBECTL_TIMEOUT = 180
_DNS_TIMEOUT = 180


def apply(kubectl: tuple[str, ...], *, control_plane: str, addresses: Addresses, dns_image: str) -> None:
    """Make the objects of the add-ons, or bring them up to date."""
    values = {"image": dns_image, "dns_address": addresses.dns_service}
    documents = [string.Template(file.read_text()).substitute(values) for file in sorted(_MANIFESTS.glob("*.yaml"))]
    label = f"""
apiVersion: v1
kind: Node
metadata:
  name: {control_plane}
  labels: {{node-role.kubernetes.io/control-plane: ""}}
"""
    shell.run(
        [*kubectl, "apply", "--server-side", "--force-conflicts", "--filename=-"],
        stdin="\n---\n".join([*documents, label]),
        timeout=_KUBECTL_TIMEOUT,
    )


def wait_for_names(addresses: Addresses) -> None:
    """Ask the cluster's DNS for a name, through its Service, until it answers."""
    deadline = time.monotonic() + _DNS_TIMEOUT
    while not _resolves("kubernetes.default.svc.cluster.local", addresses.dns_service):
        if time.monotonic() > deadline:
            raise Terminal(
                f"DNS of the cluster did not answer within {_DNS_TIMEOUT} s",
                remedy="isthmus kubectl -n kube-system describe pods -l k8s-app=kube-dns",
            )
        time.sleep(0.05)


def _resolves(name: str, server: str) -> bool:
    """Send one DNS question of type A and see whether the answer has a record in it."""
    identity = secrets.token_bytes(2)
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    question = identity + struct.pack(">5H", 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.settimeout(0.5)
        try:
            probe.connect((server, 53))
            probe.send(question)
            answer = probe.recv(512)
        except OSError:
            return False
    return answer[:2] == identity and int.from_bytes(answer[6:8], "big") > 0
