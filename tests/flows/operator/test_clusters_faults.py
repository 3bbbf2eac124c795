"""SlurmClusters while the API server is slow or refuses: every part is made in the end."""

import json
from pathlib import Path

from isthmus.domain.operator.manifests import sconfig
from isthmus.kube.client import Client
from isthmus.model.objects import DEPLOYMENTS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.bridge.crash_bed import before_the_api_server
from tests.flows.kube.waiting import eventually
from tests.flows.operator.test_clusters import working

# As the API server answers while its cache of Roles does not show one that was just made.
UNKNOWN_ROLE = json.dumps(
    {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": 'roles.rbac.authorization.k8s.io "sconfigcontroller" not found',
        "reason": "NotFound",
        "code": 404,
    }
).encode()


async def test_a_role_that_is_not_known_yet_keeps_no_part_from_being_made(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, tmp_path: Path
) -> None:
    del kube  # which has the kinds installed
    async with before_the_api_server(control_plane, tmp_path / "config") as proxy:
        refused = proxy.respond(404, body=UNKNOWN_ROLE, method="PATCH", path="*/rolebindings/*")
        proxy.delay(0.5, method="PATCH", path="*/roles/*")
        proxy.delay(0.5, method="PATCH", path="*/deployments/*")
        async with working(tmp_path / "config", namespace) as bed:
            await bed.make(slurmNodes={"worker": {"size": 1}}, populateJail={})
            writer = sconfig.name("")
            await bed.there(SERVICE_ACCOUNTS, writer)
            await bed.there(ROLES, writer)
            await bed.there(DEPLOYMENTS, writer)
            await eventually(lambda: refused.used > 2)
            refused.remove()
            # Nothing tells us when the API server knows the Role: it is tried again.
            await bed.there(ROLE_BINDINGS, writer)
