"""A node of Kubernetes: containerd, kubelet and kube-proxy, with their usual paths inside their own machine."""

import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from isthmus.local import cri, files, host
from isthmus.local.addresses import Addresses
from isthmus.local.controlplane import ControlPlane, Part, answers
from isthmus.local.machine import Machine

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
_KUBELET_HEALTH_PORT = 10248
_PROXY_HEALTH_PORT = 10256
_PROXY_METRICS_PORT = 10249

_CONTAINERD = """\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
    "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs",
    "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp"]

[grpc]
address = "{socket}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = {restrict}

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{cni}"
"""


@dataclass(frozen=True)
class Node:
    """One node: which it is, where it lives, and whom it obeys. Node 0 is the control plane."""

    name: str
    index: int
    machine: Machine
    plane: ControlPlane
    addresses: Addresses
    pause_image: str

    @property
    def address(self) -> str:
        return self.addresses.node(self.index)

    @property
    def is_control_plane(self) -> bool:
        return self.index == 0

    @property
    def socket(self) -> Path:
        """Containerd's socket, as the host reaches it."""
        return Path(f"/proc/{self.machine.init}/root{CONTAINERD_SOCKET}")

    def write_configuration(self) -> None:
        """Write what the daemons read. The same input gives the same files, which are left alone then.

        Daemons that run watch some of them: containerd has no network while it sees half of one.
        """
        directory = self.machine.directory
        network = directory / "net.d"
        network.mkdir(parents=True, exist_ok=True)
        containerd = _CONTAINERD.format(
            socket=CONTAINERD_SOCKET,
            pause=self.pause_image,
            restrict="false" if host.can_lower_oom_score() else "true",
            cni=network,
        )
        written = {
            network / "10-isthmus.conflist": json.dumps(self._cni(), indent=2),
            directory / "containerd.toml": containerd,
            directory / "kubelet.yaml": yaml.safe_dump(self._kubelet(), sort_keys=False),
            # Pods that ask for the node's own resolver get one that knows no names: there is no way out.
            directory / "resolv.conf": "# this node has no names but those of the cluster\n",
        }
        for path, text in written.items():
            if not path.exists() or path.read_text() != text:
                files.write_whole(path, text.encode())

    def containerd(self) -> Part:
        """The container runtime."""
        return Part(
            "containerd",
            ("containerd", "--config", str(self.machine.directory / "containerd.toml"), "--log-level", "warn"),
            lambda: cri.is_ready(self.socket),
        )

    def kubelet(self) -> Part:
        config = self.plane.user(f"kubelet-{self.name}", f"system:node:{self.name}", groups=("system:nodes",))
        taints = (
            ("--register-with-taints=node-role.kubernetes.io/control-plane=:NoSchedule",)
            if self.is_control_plane
            else ()
        )
        return Part(
            "kubelet",
            (
                str(self.plane.binaries["kubelet"]),
                f"--config={self.machine.directory / 'kubelet.yaml'}",
                f"--kubeconfig={config}",
                f"--hostname-override={self.name}",
                f"--node-ip={self.address}",
                *taints,
            ),
            lambda: answers(f"http://{self.address}:{_KUBELET_HEALTH_PORT}/healthz"),
        )

    def proxy(self) -> Part:
        """Services, as rules of nftables."""
        config = self.plane.user("kube-proxy", "system:kube-proxy")
        return Part(
            "kube-proxy",
            (
                str(self.plane.binaries["kube-proxy"]),
                f"--kubeconfig={config}",
                f"--hostname-override={self.name}",
                "--proxy-mode=nftables",
                # Whoever comes from elsewhere, such as the host, is answered through the node that it asked.
                f"--cluster-cidr={self.addresses.all_pods}",
                f"--healthz-bind-address={self.address}:{_PROXY_HEALTH_PORT}",
                f"--metrics-bind-address={self.address}:{_PROXY_METRICS_PORT}",
                # These are settings of the whole machine, which is not ours to change.
                "--conntrack-max-per-core=0",
                "--conntrack-tcp-timeout-established=0",
                "--conntrack-tcp-timeout-close-wait=0",
            ),
            lambda: answers(f"http://{self.address}:{_PROXY_HEALTH_PORT}/livez"),
        )

    def _cni(self) -> dict[str, Any]:
        pods = ipaddress.ip_network(self.addresses.pods(self.index))
        return {
            "cniVersion": "0.4.0",
            "name": "isthmus",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "pods",
                    "isGateway": True,
                    "hairpinMode": True,
                    "ipMasq": False,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": "/var/lib/cni/networks",
                        "ranges": [[{"subnet": str(pods)}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }

    def _kubelet(self) -> dict[str, Any]:
        serving = self.plane.authority.issue(
            f"kubelet-{self.name}-server", self.name, hosts=(self.address, self.name)
        )
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.plane.authority.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(serving.certificate),
            "tlsPrivateKeyFile": str(serving.key),
            "healthzBindAddress": self.address,
            "healthzPort": _KUBELET_HEALTH_PORT,
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.machine.group}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "clusterDomain": "cluster.local",
            "clusterDNS": [self.addresses.dns_service],
            "resolvConf": str(self.machine.directory / "resolv.conf"),
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",
            "maxPods": 200,
            "serializeImagePulls": False,
            # Images are links into a store that all nodes share: removing them would free nothing.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            # The node's lease is renewed every quarter of this, so that a dead node is seen within seconds.
            "nodeLeaseDurationSeconds": 12,
            "logging": {"verbosity": 0},
        }
