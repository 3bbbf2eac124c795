"""Pods for tests: small, quick to end, and pinned to a node where that matters."""

from isthmus.local.images.recipes import reference

TOOLS = reference("slurm-26.05")  # a Debian with ip, nc and ps
PYTHON = reference("isthmus")


def pod(
    name: str, *, node: str = "", command: str = "exec sleep infinity", image: str = TOOLS, more: str = ""
) -> str:
    """A pod that runs a shell command. `more` is added to its spec, as YAML with two spaces before each line."""
    where = f"  nodeSelector: {{kubernetes.io/hostname: {node}}}\n" if node else ""
    return f"""
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
{where}  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: {image}
      command: [sh, -euc, {command!r}]
{more}"""


WEB = "cd /tmp && hostname > index.html && exec python3 -m http.server 8080"


def web(name: str, *, node: str = "") -> str:
    """A pod that answers HTTP on 8080 with its own name."""
    probe = "      readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}\n"
    return pod(name, node=node, command=WEB, image=PYTHON, more=probe)
