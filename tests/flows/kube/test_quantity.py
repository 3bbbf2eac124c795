"""Quantities as the API server itself reads and writes them."""

import random

from isthmus.domain.languages.quantity import milli, parse, whole
from isthmus.kube.client import Client
from isthmus.model.base import Kind
from tests.flows.kube.conftest import pod

PODS: Kind[dict[str, object]] = Kind(dict[str, object], "v1", "pods", "Pod")
SUFFIXES = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]


def some_quantity(rng: random.Random) -> str:
    """Make a quantity as varied as the grammar allows, and smaller than what the API server garbles."""
    before = str(rng.randrange(10 ** rng.randrange(1, 10))) if rng.random() < 0.9 else ""
    zeros = "0" * rng.choice([0, 0, 0, 1, 3, 4])
    after = "" if before and rng.random() < 0.5 else "." + str(rng.randrange(10 ** rng.randrange(1, 12)))
    suffix = rng.choice(SUFFIXES) if rng.random() < 0.8 else f"{rng.choice('eE')}{rng.randrange(-9, 9)}"
    if suffix in {"G", "T", "P", "E"}:
        before, zeros = before[:2], ""
    text = (
        f"{rng.choice(['', '', '+'])}{rng.choice(['', '', '00'])}{before}{zeros if before else ''}{after}{suffix}"
    )
    return text if before or after else f"1{suffix}"


async def test_two_thousand_random_quantities_read_as_the_api_server_reads_them(
    client: Client, namespace: str
) -> None:
    """A volume's size limit is kept as a plain quantity, so one pod of many volumes asks about many."""
    rng = random.Random(20261115)  # noqa: S311 - the same two thousand each time
    texts = [some_quantity(rng) for _ in range(2000)]
    disagreed: dict[str, str] = {}
    for start in range(0, len(texts), 500):
        part = texts[start : start + 500]
        volumes = [{"name": f"v{n}", "emptyDir": {"sizeLimit": text}} for n, text in enumerate(part)]
        answer = await client.create(PODS, pod(namespace, "quantities", volumes=volumes), dry_run=True)
        spec = answer["spec"]
        assert isinstance(spec, dict)
        # The pod has one more: the service account's token.
        for text, volume in zip(part, spec["volumes"][: len(part)], strict=True):
            theirs = volume["emptyDir"]["sizeLimit"]
            if parse(text) != parse(theirs):
                disagreed[text] = theirs
    assert disagreed == {}


async def test_the_api_server_compares_as_we_do(client: Client, namespace: str) -> None:
    """Requests above limits are refused, so a pod tells which of two quantities is larger."""
    resources = {"requests": {"memory": "1024Mi", "cpu": "0.25"}, "limits": {"memory": "1Gi", "cpu": "250m"}}
    made = await client.create(
        PODS,
        pod(namespace, "equal", containers=[{"name": "c", "image": "i", "resources": resources}]),
        dry_run=True,
    )
    assert made["kind"] == "Pod"
    assert whole("1024Mi") == whole("1Gi")
    assert milli("0.25") == milli("250m")
