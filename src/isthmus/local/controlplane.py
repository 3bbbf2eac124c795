"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler: their certificates and how each is started.

Used twice: by the local cluster, inside the control-plane node, and by the tests' control plane, which runs on a
loopback address without any node.
"""

import http.client
import ssl
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from isthmus.local import kubeconfig
from isthmus.local.pki import Authority, make_signing_key

API_PORT = 6443
_ETCD_PORT = 2379
_ETCD_PEER_PORT = 2380
_ETCD_HTTP_PORT = 2381
_CONTROLLER_MANAGER_PORT = 10257
_SCHEDULER_PORT = 10259

# The built-in PodGroup and Workload API, which the bridge places.
_FEATURE_GATES = "GenericWorkload=true"


@dataclass(frozen=True)
class Part:
    """A daemon: how it is started, and how to see that it is ready. `ready` is cheap and asked repeatedly."""

    name: str
    argv: tuple[str, ...]
    ready: Callable[[], bool]
    on_host_network: bool = False


@dataclass(frozen=True)
class ControlPlane:
    """Where one control plane lives and what it serves."""

    name: str
    directory: Path
    address: str
    service_range: str
    service_address: str
    binaries: dict[str, Path]

    @property
    def url(self) -> str:
        """Where the API server is reached."""
        return f"https://{self.address}:{API_PORT}"

    @property
    def etcd_url(self) -> str:
        """Where etcd is reached by gRPC, with a certificate of `etcd_authority`."""
        return f"https://{self.address}:{_ETCD_PORT}"

    @property
    def etcd_http_url(self) -> str:
        """Where etcd serves its health and metrics, with the same certificates."""
        return f"https://{self.address}:{_ETCD_HTTP_PORT}"

    @cached_property
    def authority(self) -> Authority:
        """Signs every certificate that the API server trusts."""
        return Authority(self.directory / "pki", "ca")

    @cached_property
    def etcd_authority(self) -> Authority:
        """Signs for etcd alone: a certificate of the cluster opens no door there."""
        return Authority(self.directory / "pki" / "etcd", "ca", common_name="isthmus-etcd-ca")

    @cached_property
    def front_proxy_authority(self) -> Authority:
        """Signs for the aggregation layer."""
        return Authority(self.directory / "pki" / "front-proxy", "ca", common_name="isthmus-front-proxy-ca")

    @cached_property
    def signing_key(self) -> Path:
        """Signs the tokens of service accounts."""
        return make_signing_key(self.authority.directory / "service-accounts.key")

    @cached_property
    def admin(self) -> Path:
        """The administrator's kubeconfig."""
        return self.user("admin", "kubernetes-admin", groups=("system:masters",))

    def user(self, file_name: str, common_name: str, *, groups: tuple[str, ...] = ()) -> Path:
        """Make the kubeconfig of a client of this control plane."""
        pair = self.authority.issue(file_name, common_name, groups=groups)
        return kubeconfig.write(
            self.directory / f"{file_name}.kubeconfig",
            name=self.name,
            server=self.url,
            authority=self.authority.certificate,
            user=pair,
        )

    def etcd(self) -> Part:
        """The store. It does not wait for the disk: what is lost with the machine can be made again."""
        pair = self.etcd_authority.issue("server", "etcd", hosts=(self.address,))
        health = f"{self.etcd_http_url}/readyz"
        context = self.client_context(self.etcd_authority)
        return Part(
            "etcd",
            (
                str(self.binaries["etcd"]),
                f"--data-dir={self.directory / 'etcd'}",
                f"--listen-client-urls={self.etcd_url}",
                # Beside HTTP on one port, gRPC takes a slower path.
                f"--listen-client-http-urls={self.etcd_http_url}",
                f"--advertise-client-urls={self.etcd_url}",
                f"--listen-peer-urls=https://{self.address}:{_ETCD_PEER_PORT}",
                f"--initial-advertise-peer-urls=https://{self.address}:{_ETCD_PEER_PORT}",
                f"--initial-cluster=default=https://{self.address}:{_ETCD_PEER_PORT}",
                f"--cert-file={pair.certificate}",
                f"--key-file={pair.key}",
                f"--trusted-ca-file={self.etcd_authority.certificate}",
                "--client-cert-auth",
                f"--peer-cert-file={pair.certificate}",
                f"--peer-key-file={pair.key}",
                f"--peer-trusted-ca-file={self.etcd_authority.certificate}",
                "--peer-client-cert-auth",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ),
            lambda: answers(health, context),
        )

    def apiserver(self, *extra: str) -> Part:
        """The API server, with RBAC and node restriction."""
        server = self.authority.issue(
            "apiserver",
            "kube-apiserver",
            hosts=(
                self.address,
                self.service_address,
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
                "localhost",
            ),
        )
        kubelet_client = self.authority.issue(
            "apiserver-kubelet-client", "kube-apiserver-kubelet-client", groups=("system:masters",)
        )
        etcd_client = self.etcd_authority.issue("client", "kube-apiserver")
        front_proxy = self.front_proxy_authority.issue("client", "front-proxy-client")
        health, context = f"{self.url}/readyz", self.client_context(self.authority)
        return Part(
            "kube-apiserver",
            (
                str(self.binaries["kube-apiserver"]),
                f"--bind-address={self.address}",
                f"--advertise-address={self.address}",
                f"--secure-port={API_PORT}",
                f"--etcd-servers={self.etcd_url}",
                f"--etcd-cafile={self.etcd_authority.certificate}",
                f"--etcd-certfile={etcd_client.certificate}",
                f"--etcd-keyfile={etcd_client.key}",
                f"--client-ca-file={self.authority.certificate}",
                f"--tls-cert-file={server.certificate}",
                f"--tls-private-key-file={server.key}",
                f"--kubelet-client-certificate={kubelet_client.certificate}",
                f"--kubelet-client-key={kubelet_client.key}",
                f"--kubelet-certificate-authority={self.authority.certificate}",
                "--kubelet-preferred-address-types=InternalIP",
                f"--requestheader-client-ca-file={self.front_proxy_authority.certificate}",
                "--requestheader-allowed-names=front-proxy-client",
                "--requestheader-username-headers=X-Remote-User",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                f"--proxy-client-cert-file={front_proxy.certificate}",
                f"--proxy-client-key-file={front_proxy.key}",
                "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
                f"--service-account-key-file={self.signing_key}",
                f"--service-account-signing-key-file={self.signing_key}",
                f"--service-cluster-ip-range={self.service_range}",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--allow-privileged=true",
                "--profiling=false",
                f"--feature-gates={_FEATURE_GATES}",
                "--runtime-config=scheduling.k8s.io/v1alpha2=true",
                # Nobody waits for load balancers to notice when a machine of one goes away.
                "--shutdown-delay-duration=0s",
                *extra,
            ),
            lambda: answers(health, context),
        )

    def controller_manager(self, *extra: str) -> Part:
        """The controllers of Kubernetes itself."""
        return self._client_of_the_api(
            "controller-manager",
            _CONTROLLER_MANAGER_PORT,
            f"--root-ca-file={self.authority.certificate}",
            f"--service-account-private-key-file={self.signing_key}",
            f"--cluster-signing-cert-file={self.authority.certificate}",
            f"--cluster-signing-key-file={self.authority.key}",
            "--use-service-account-credentials=true",
            "--allocate-node-cidrs=false",
            "--controllers=*,-cloud-node-lifecycle-controller,-node-route-controller,-service-lb-controller",
            # A stopped node is noticed in seconds, as tests and people want it, not after most of a minute.
            "--node-monitor-period=1s",
            "--node-monitor-grace-period=20s",
            *extra,
        )

    def scheduler(self) -> Part:
        """The stock scheduler, for everything that is not Slurm's to place."""
        return self._client_of_the_api("scheduler", _SCHEDULER_PORT)

    def _client_of_the_api(self, name: str, port: int, *flags: str) -> Part:
        """A daemon that works through the API and lets it decide who may read its health and metrics."""
        config = self.user(name, f"system:kube-{name}")
        server = self.authority.issue(f"{name}-server", name, hosts=(self.address,))
        health, context = f"https://{self.address}:{port}/healthz", self.client_context(self.authority)
        return Part(
            f"kube-{name}",
            (
                str(self.binaries[f"kube-{name}"]),
                f"--kubeconfig={config}",
                f"--authentication-kubeconfig={config}",
                f"--authorization-kubeconfig={config}",
                f"--bind-address={self.address}",
                f"--tls-cert-file={server.certificate}",
                f"--tls-private-key-file={server.key}",
                f"--client-ca-file={self.authority.certificate}",
                "--leader-elect=false",
                f"--feature-gates={_FEATURE_GATES}",
                "--profiling=false",
                *flags,
            ),
            lambda: answers(health, context),
        )

    def client_context(self, authority: Authority) -> ssl.SSLContext:
        """Trust `authority` and show a certificate of it: health is not served to others."""
        context = ssl.create_default_context(cafile=str(authority.certificate))
        pair = authority.issue("health", "isthmus-health", groups=("system:monitoring",))
        context.load_cert_chain(pair.certificate, pair.key)
        return context


def answers(url: str, context: ssl.SSLContext | None = None) -> bool:
    """Whether a health address says yes. Asked directly: a proxy of the machine knows none of ours."""
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(url, timeout=10) as answer:
            return bool(answer.status == 200)  # noqa: PLR2004 - HTTP's own number
    except (OSError, http.client.HTTPException):
        return False
