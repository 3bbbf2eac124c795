"""What `isthmus cluster status` makes of the parts that it read."""

import pytest

from isthmus.domain.diagnosis.facts import ClusterFacts, PartFact
from isthmus.inspect.clusterfacts import Found
from isthmus.inspect.clusterstatus import _parts
from isthmus.model.meta import Condition, ConditionStatus, Key, ObjectMeta
from isthmus.model.slinky import Accounting, AccountingSpec

KEY = Key("hpc", "demo")


def ready(status: ConditionStatus) -> tuple[Condition, ...]:
    return (Condition("Ready", status, message="as it is"),)


@pytest.mark.parametrize(
    ("conditions", "observed", "count", "said"),
    [
        pytest.param(ready("True"), 2, "yes", "", id="well"),
        pytest.param(ready("False"), 2, "no", "as it is", id="unwell"),
        pytest.param(ready("True"), 1, "no", "as it is", id="changed since"),
        pytest.param((), 2, "no", "", id="new"),
    ],
)
def test_a_part_that_is_not_well_says_why(
    conditions: tuple[Condition, ...], observed: int, count: str, said: str
) -> None:
    made = Accounting(AccountingSpec(), metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace))
    found = Found(clusters=(), parts={"Accounting": (made,)}, pods=(), claims=(), warnings=(), configs=())
    fact = PartFact("Accounting", KEY.name, generation=2, observed_generation=observed, conditions=conditions)
    # A Token is nothing that runs, so it has no line.
    (line,) = _parts(ClusterFacts(KEY, parts=(PartFact("Token", "alice"), fact)), found)
    assert (line.ready, line.well, line.told) == (count, count == "yes", said)
