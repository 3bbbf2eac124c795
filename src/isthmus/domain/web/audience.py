"""Who sees what: all jobs or one user's, all pods or those of some namespaces.

Viewers with the same rights are one audience. What is sent is written once for each audience, so a thousand viewers
who see everything cost one encoding.
"""

from typing import Final, Literal

import msgspec

Table = Literal["jobs", "pods", "nodes"]


class Audience(msgspec.Struct, frozen=True):
    all_jobs: bool = False
    slurm_user: str = ""
    """Whose jobs are seen where not all are; empty for nobody's."""
    all_pods: bool = False
    namespaces: frozenset[str] = frozenset()
    """Whose pods are seen where not all are."""
    nodes: bool = False

    def sees(self, table: Table, owner: str) -> bool:
        """Whether a row is seen. Its owner is a user of Slurm for a job, and a namespace for a pod."""
        if table == "jobs":
            return self.all_jobs or (bool(self.slurm_user) and owner == self.slurm_user)
        if table == "pods":
            return self.all_pods or owner in self.namespaces
        return self.nodes


EVERYBODY: Final = Audience(all_jobs=True, all_pods=True, nodes=True)
