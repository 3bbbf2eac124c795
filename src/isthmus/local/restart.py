"""Switches a node of a local cluster on again that was rebooted from inside: `machine` runs it then.

python -m isthmus.local.restart CLUSTER NODE
"""

import sys

from isthmus.local import lifecycle

if __name__ == "__main__":
    lifecycle.restart_node(*sys.argv[1:])
