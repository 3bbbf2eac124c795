"""What a change of custom resources would do, before it is made.

    objects, as they are and would be ──► clusters (`clusterobjects`) ──► what differs, and what follows (`effects`)

Both sides are rendered by the functions by which the operator works, so what differs is what it would act on.
"""

from isthmus.domain.operator.preview.clusterobjects import KINDS, ClusterObjects, Clusters, Objects, clusters_of
from isthmus.domain.operator.preview.effect import Effect, Live, NodeJobs
from isthmus.domain.operator.preview.effects import effects

__all__ = ["KINDS", "ClusterObjects", "Clusters", "Effect", "Live", "NodeJobs", "Objects", "clusters_of", "effects"]
