"""A whole Slurm cluster in one custom resource becomes its parts, which are custom resources themselves.

parts = parts_of(cluster, nodesets, prefix="", settings=settings)
parts.children      what to apply
parts.problems      why it cannot be made as it is written; then nothing is applied
parts.ignored       fields without effect, by name
"""

from isthmus.domain.operator.clusterparts.cluster import Parts, nodeset_part, parts_of, prefix
from isthmus.domain.operator.clusterparts.daemons import JWT_KEY, SLURM_KEY, Child, resting, worker_count

__all__ = [
    "JWT_KEY",
    "SLURM_KEY",
    "Child",
    "Parts",
    "nodeset_part",
    "parts_of",
    "prefix",
    "resting",
    "worker_count",
]
