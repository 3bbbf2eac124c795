"""Kubeconfig files with everything inside, so that a copy of the file is enough."""

import base64
from pathlib import Path

import yaml

from isthmus.local.pki import Pair, write_secret


def write(path: Path, *, name: str, server: str, authority: Path, user: Pair) -> Path:
    """Write a kubeconfig in which `name` is cluster, user and context at once."""

    def inline(file: Path) -> str:
        return base64.b64encode(file.read_bytes()).decode()

    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority-data": inline(authority)}}
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": inline(user.certificate),
                    "client-key-data": inline(user.key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    write_secret(path, yaml.safe_dump(config, sort_keys=False).encode())
    return path
