"""Certificates of slurmdbd and an external database."""

from typing import Final

from isthmus.domain.operator.clusterparts import pods
from isthmus.domain.operator.clusterparts.pods import Fields
from isthmus.model.soperator import DatabaseTls, ExternalDatabase

_SERVER: Final = "/run/secrets/database-ca"
_CLIENT: Final = "/run/secrets/database-client"


def parameters(database: ExternalDatabase) -> dict[str, str]:
    """Make the entries of StorageParameters that say where they are."""
    tls = database.tls or DatabaseTls()
    made = {"SSL_CA": f"{_SERVER}/ca.crt"} if tls.server_ca_secret_ref else {}
    if tls.client_cert_secret_ref:
        made |= {"SSL_CERT": f"{_CLIENT}/tls.crt", "SSL_KEY": f"{_CLIENT}/tls.key"}
    return made


def mounted(database: ExternalDatabase) -> tuple[list[Fields], list[Fields]]:
    tls = database.tls or DatabaseTls()
    given = (
        ("database-ca", tls.server_ca_secret_ref, _SERVER, ("ca.crt",)),
        ("database-client", tls.client_cert_secret_ref, _CLIENT, ("tls.crt", "tls.key")),
    )
    volumes: list[Fields] = []
    places: list[Fields] = []
    for name, secret, where, keys in given:
        if secret and database.enabled:
            items = [{"key": key, "path": key} for key in keys]
            # For the group of the pod, which slurmdbd has.
            volumes.append({"name": name, "secret": {"secretName": secret, "items": items, "defaultMode": 0o440}})
            places.append(pods.place(name, where, read_only=True))
    return volumes, places
