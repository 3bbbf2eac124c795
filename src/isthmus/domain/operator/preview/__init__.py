"""What a change of custom resources would do, before it is made.

    objects, as they are and as they would be ──► families (`family`) ──► what differs, and what follows (`effects`)

Both sides are rendered by the functions by which the operator works, so what differs is what it would act on.
"""

from isthmus.domain.operator.preview.effect import Effect, Live, NodeJobs
from isthmus.domain.operator.preview.effects import effects
from isthmus.domain.operator.preview.family import KINDS, Families, Family, Objects, families

__all__ = ["KINDS", "Effect", "Families", "Family", "Live", "NodeJobs", "Objects", "effects", "families"]
