"""The configuration files of a Slurm cluster, made from its custom resources.

    Controller, NodeSets, Accounting, Settings ──►  slurm.conf, cgroup.conf, gres.conf
    ConfigMaps that the Controller names       ──►  as they are, beside these

Every file goes into one ConfigMap, from which slurmctld takes it; all other daemons ask slurmctld. The same input
is always the same text, so nothing is reconfigured that did not change.
"""

from isthmus.domain.operator.slurmfiles.extra import Extra
from isthmus.domain.operator.slurmfiles.files import Scripts, checked_files
from isthmus.domain.operator.slurmfiles.nodes import Workers
from isthmus.domain.operator.slurmfiles.whole import (
    Inputs,
    cgroup_conf,
    external_conf,
    files,
    gres_conf,
    located,
    slurm_conf,
)

__all__ = [
    "Extra",
    "Inputs",
    "Scripts",
    "Workers",
    "cgroup_conf",
    "checked_files",
    "external_conf",
    "files",
    "gres_conf",
    "located",
    "slurm_conf",
]
