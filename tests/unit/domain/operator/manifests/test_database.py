import subprocess
from typing import Any

import msgspec

from isthmus import names
from isthmus.domain.operator.manifests import database
from isthmus.domain.operator.manifests.common import Settings
from isthmus.model.slinky import Accounting


def made(**spec: Any) -> dict[str, Any]:
    keys = {"slurmKeyRef": {"name": "k", "key": "slurm.key"}, "jwtKeyRef": {"name": "k", "key": "jwt.key"}}
    manifest = {"metadata": {"name": "slurm", "namespace": "hpc", "uid": "a"}, "spec": {**keys, "database": spec}}
    accounting = msgspec.convert(manifest, Accounting)
    return database.statefulset(accounting, settings=Settings(), password_version="7")


def test_data_is_in_a_volume_that_stays() -> None:
    (claim,) = made()["spec"]["volumeClaimTemplates"]
    assert claim == {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "4Gi"}}},
    }


def test_the_volume_is_as_the_user_wants_it() -> None:
    fast = {"storageClassName": "fast", "resources": {"requests": {"storage": "50Gi"}}}
    (claim,) = made(persistence=fast)["spec"]["volumeClaimTemplates"]
    assert claim["spec"] == {"accessModes": ["ReadWriteOnce"], **fast}
    existing = made(persistence={"existingClaim": "mine"})["spec"]
    assert "volumeClaimTemplates" not in existing
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "mine"}} in existing["template"]["spec"][
        "volumes"
    ]
    none = made(persistence={"enabled": False})["spec"]
    assert {"name": "data", "emptyDir": {}} in none["template"]["spec"]["volumes"]


def test_the_pod_is_made_anew_for_another_password() -> None:
    template = made()["spec"]["template"]
    assert template["metadata"]["annotations"][names.DATABASE_ACCESS_ANNOTATION] == "7"
    (container,) = template["spec"]["containers"]
    assert "env" not in container


def test_image_resources_and_options_are_the_users() -> None:
    template = {"spec": {"containers": [{"name": "mariadb", "args": ["--innodb-buffer-pool-size=4G"]}]}}
    wish = {"image": "mine:1", "resources": {"limits": {"memory": "8Gi"}}, "template": template}
    (container,) = made(**wish)["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["resources"]) == ("mine:1", {"limits": {"memory": "8Gi"}})
    assert container["args"][-1] == "--innodb-buffer-pool-size=4G"


def test_the_script_is_read_by_bash() -> None:
    done = subprocess.run(["bash", "-n"], input=database._START, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
