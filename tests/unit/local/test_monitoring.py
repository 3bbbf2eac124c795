"""What monitoring consists of: objects that hang together, rights no wider than meant, a proper certificate."""

import base64
import re
from typing import Any

import pytest
import yaml
from cryptography import x509

from isthmus.local import controlplane, monitoring, node, resources
from isthmus.local.cluster import Cluster
from isthmus.local.images.recipes import IMAGES, reference
from isthmus.local.pki import Authority
from isthmus.local.state import Settings
from isthmus.local.supply import MONITORING

Made = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"), "ca")


@pytest.fixture(scope="module")
def made(authority: Authority) -> Made:
    return {(it["kind"], it["metadata"]["name"]): it for it in monitoring.objects(authority)}


def templates(made: Made) -> list[dict[str, Any]]:
    return [it["spec"]["template"] for (kind, _), it in made.items() if kind == "Deployment"]


def test_pods_mount_what_is_there_and_run_images_that_are_loaded(made: Made) -> None:
    loaded = {reference(name) for name in MONITORING}
    for template in templates(made):
        (container,) = template["spec"]["containers"]
        assert container["image"] in loaded
        for volume in template["spec"]["volumes"]:
            if source := volume.get("configMap"):
                assert ("ConfigMap", source["name"]) in made
            if source := volume.get("secret"):
                assert ("Secret", source["secretName"]) in made


def test_pods_run_confined_and_as_the_user_of_their_image(made: Made) -> None:
    assert all(IMAGES[name].user == "65532:65532" for name in MONITORING)
    for template in templates(made):
        assert template["spec"]["securityContext"]["runAsNonRoot"]
        (container,) = template["spec"]["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_rights_are_to_read_and_name_what_they_are_for(made: Made) -> None:
    for (kind, _), role in made.items():
        for rule in role["rules"] if kind.endswith("Role") else ():
            assert set(rule["verbs"]) <= {"get", "list", "watch"}
            assert "*" not in rule.get("resources", []) + rule.get("nonResourceURLs", [])
            assert not {"secrets", "configmaps", "nodes/proxy"} & set(rule.get("resources", []))


def test_services_lead_to_the_pods_of_their_deployment(made: Made) -> None:
    for name in ("prometheus", "alertmanager", "metrics-server"):
        labels = made["Deployment", name]["spec"]["template"]["metadata"]["labels"]
        assert made["Service", name]["spec"]["selector"].items() <= labels.items()


def test_the_api_server_verifies_metrics_server_by_the_name_of_its_service(
    made: Made, authority: Authority
) -> None:
    spec = made["APIService", "v1beta1.metrics.k8s.io"]["spec"]
    assert base64.b64decode(spec["caBundle"]) == authority.certificate.read_bytes()
    assert "insecureSkipTLSVerify" not in spec
    secret = made["Secret", "metrics-server"]["data"]
    certificate = x509.load_pem_x509_certificate(base64.b64decode(secret["tls.crt"]))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    service = spec["service"]
    assert names.get_values_for_type(x509.DNSName) == [f"{service['name']}.{service['namespace']}.svc"]


def test_ports_that_are_scraped_on_nodes_are_those_that_the_daemons_listen_on() -> None:
    config = yaml.safe_load((monitoring._MANIFESTS / "prometheus.yml").read_text())
    scraped = {
        job["job_name"]: int(found[1])
        for job in config["scrape_configs"]
        for rule in job.get("relabel_configs", ())
        if (found := re.fullmatch(r"\$1:(\d+)", rule.get("replacement", "")))
    }
    assert scraped == {
        "kube-controller-manager": controlplane._CONTROLLER_MANAGER_PORT,
        "kube-scheduler": controlplane._SCHEDULER_PORT,
        "kube-proxy": node._PROXY_METRICS_PORT,
    }


def test_rules_are_those_of_the_chart_unless_helm_has_put_them_there(made: Made, authority: Authority) -> None:
    (text,) = made["ConfigMap", "isthmus-rules"]["data"].values()
    assert text == (resources.chart("isthmus-monitoring") / "files/rules.yaml").read_text()
    without = {it["metadata"]["name"] for it in monitoring.objects(authority, with_rules=False)}
    assert {name for _, name in made} - without == {"isthmus-rules"}


@pytest.mark.parametrize("wanted", [True, False])
def test_addresses_are_told_of_clusters_that_have_monitoring(*, wanted: bool) -> None:
    cluster = Cluster(Settings("demo", slot=1, workers=1, slurm="26.05", monitoring=wanted), {})
    found = monitoring.addresses(cluster)
    assert found == (
        {"Prometheus": "http://198.18.32.2:30090", "Alertmanager": "http://198.18.32.2:30093"} if wanted else {}
    )
