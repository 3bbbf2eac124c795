"""Which random courses a test takes: few in `make test`, many in `make soak`, one to see a failure again."""

import os


def seeds(default: int = 3) -> list[int]:
    """`ISTHMUS_SEEDS` is how many, or which ones: `200`, or `17,` or `17,18`."""
    text = os.environ.get("ISTHMUS_SEEDS", str(default))
    return [int(one) for one in text.split(",") if one] if "," in text else list(range(int(text)))
