"""In which block of the network a machine stands: nodes of one block are close to each other."""

from isthmus import names
from isthmus.model.node import Node
from isthmus.model.slurm import Node as SlurmNode


def block_of(node: SlurmNode | None, machine: Node | None) -> str:
    """Name the topology block of a node: as Slurm has it, or as the labels of its machine say."""
    if node is not None and node.topology:
        return node.topology
    if machine is None:
        return ""
    meta = machine.metadata
    if told := meta.annotations.get(names.NODE_TOPOLOGY_ANNOTATION, "").strip():
        return told
    return next((found for label in names.BLOCK_LABELS if (found := meta.labels.get(label))), "")
