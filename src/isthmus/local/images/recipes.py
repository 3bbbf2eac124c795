"""What every layer and image is made of. Data only: `layers` and `build` carry it out.

    debian-forky ── slurm-26.05 ── login-26.05          debian-trixie ┬─ slurm-24.11 ── login-24.11
                                                                      ├─ mariadb
                                                                      ├─ prometheus
                                                                      └─ python ── packages ── isthmus
    pause, coredns, jobset, lws, metrics-server: one file each

    spank-26.05 is our plugin for Slurm 26.05, which slurm-26.05 and login-26.05 get on top; for 24.11 likewise

Slurm 26.05 comes from Debian's testing release, which moves: `expects` makes a build say so when it gets another
version. Everything that need not be that new comes from the stable release.
"""

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

import isthmus
from isthmus.local.architecture import Architecture

Suite = Literal["forky", "trixie"]


class Layer(Struct, frozen=True, kw_only=True):
    """A difference to its parent: files are put there, packages are installed, a script is run, in this order."""

    name: str
    parent: str = ""
    suite: Suite | Literal[""] = ""
    packages: tuple[str, ...] = ()
    """Debian packages. A layer with a suite, packages and no parent is a new Debian system."""
    source: Literal["", "binary", "wheels", "isthmus", "spank"] = ""
    """What the machine that builds adds: a program, locked Python packages, our own code, or our plugin's in C."""
    copies: tuple[tuple[str, str], ...] = ()
    """Files taken from other layers: (layer, path). `{multiarch}` stands for the directory of the architecture."""
    files: dict[str, str] = {}
    """Files of our own: path → text. A text that begins with `#!` makes an executable."""
    script: str = ""
    """A shell script that is run as root inside, after the packages are installed."""
    remove: tuple[str, ...] = ()
    """Glob patterns of what installing leaves behind that must not be the same everywhere, or not be public."""
    expects: tuple[str, str] | None = None
    """(package, how its version must begin)."""


class Recipe(Struct, frozen=True, kw_only=True):
    """An image: a chain of layers, named by the last, and how it starts."""

    name: str
    tag: str
    layer: str
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: str = ""
    env: tuple[str, ...] = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",)
    title: str = ""


_SLURM = (
    "munge",
    "sackd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-jwt-plugin",
    "slurm-wlm-mysql-plugin",
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurmrestd",
    # The users of a cluster are files that are mounted: /var/lib/extrausers/{passwd,group,shadow}.
    "libnss-extrausers",
    # Prologs, health checks and entry points are scripts that look at the machine; check_runner.py is Python.
    "iproute2",
    "iputils-ping",
    "netcat-openbsd",
    "procps",
    "python3",
    "util-linux",
)

# Files in volumes outlive images, so users need fixed numbers: Debian gives `slurm` 64030, munge whatever is free.
# slurmrestd refuses to run as root, as slurm and as nobody.
_SLURM_USERS = """
sed -i -E 's/^(passwd|group|shadow):.*/\\1: files extrausers/' /etc/nsswitch.conf
groupmod --gid 400 munge
usermod --uid 400 --gid 400 munge
chown -R munge:munge /etc/munge /var/lib/munge /var/log/munge
groupadd --gid 64031 slurmrestd
useradd --uid 64031 --gid 64031 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin slurmrestd
"""

# A key that is in a public image is no key: both are made when a cluster starts.
_SLURM_KEYS = ("etc/munge/munge.key", "etc/slurm/*.key")

_LOGIN = (
    "openssh-server",
    "bash-completion",
    "bind9-dnsutils",
    "build-essential",
    "curl",
    "file",
    "gdb",
    "gfortran",
    "git",
    "htop",
    "jq",
    "less",
    # Debian's Slurm has PMI-2 and no PMIx: MPICH starts under `srun --mpi=pmi2`, Open MPI would not.
    "libmpich-dev",
    # Workers let in by SSH who has a job there.
    "libpam-slurm-adopt",
    "lsof",
    "man-db",
    "manpages",
    "mpich",
    "nano",
    "openssh-client",
    "python3-pip",
    "python3-venv",
    "rsync",
    "strace",
    "sudo",
    "telnet",
    "tmux",
    "unzip",
    "vim",
    "wget",
    "xauth",
)

_SSH_HOST_KEYS = ("etc/ssh/ssh_host_*",)

# The operator mounts there by which keys workers are known.
_KNOWN_HOSTS = {
    "etc/ssh/ssh_config.d/isthmus.conf": "GlobalKnownHostsFile /etc/ssh/ssh_known_hosts"
    " /etc/ssh/isthmus/ssh_known_hosts\n"
}

# People read manuals where they log in. Those of the layers below were left out when their packages were installed.
_MANUALS = {"etc/dpkg/dpkg.cfg.d/with-manuals": "path-include=/usr/share/man/*\n"}
_INSTALL_AGAIN = "slurm-client coreutils"

# A home is made at the first login. Few containers may write the audit id without which Debian ends a session.
# `apt-get` of users asks the mirror from which the image was made; a password for it stays out of the image.
_LOGIN_SESSIONS = f"""
apt-get -qq -o Dir::Etc::SourceList=/run/sources.list -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 \\
    -o Dpkg::Options::=--force-unsafe-io install --yes --reinstall {_INSTALL_AGAIN}
sed -E 's|//[^/@]*@|//|' /run/sources.list > /etc/apt/sources.list
pam-auth-update --enable mkhomedir
sed -i -E 's/^(session +)required( +pam_loginuid.so)/\\1optional\\2/' /etc/pam.d/sshd
"""

# mariadb-install-db works for a second or two; to unpack what it made takes a tenth of that. It holds no password:
# through the socket, root and mysql are let in.
_DATABASE = """
groupmod --gid 401 mysql
usermod --uid 401 --gid 401 mysql
chown mysql:mysql /var/lib/mysql /usr/lib/mysql/plugin/auth_pam_tool_dir
mariadb-install-db --no-defaults --user=mysql --datadir=/tmp/made --skip-test-db --skip-name-resolve \\
    --auth-root-authentication-method=socket --innodb-log-file-size=4M
cp --archive --sparse=always /tmp/made /tmp/sparse
mkdir /usr/share/isthmus
tar --create --sparse --file=/usr/share/isthmus/mysql-template.tar --directory=/tmp/sparse .
"""

_ENSURE_DATABASE = """\
#!/bin/sh
# Unpacks an empty database into a new directory, and leaves one that is there alone: mariadb-ensure-data DIRECTORY
set -eu
[ ! -d "$1" ] || exit 0
rm -rf "$1.partial"
mkdir "$1.partial"
tar --extract --file=/usr/share/isthmus/mysql-template.tar --directory="$1.partial"
find "$1.partial" -type f -exec sync --data {} +
mv "$1.partial" "$1"
"""

# Kubelet renews mounted ConfigMaps, and Prometheus reads them once, and then when it is sent SIGHUP.
_RELOADING = """\
#!/bin/sh
# Runs Prometheus, and makes it read its files again when they change: prometheus-reloading OPTION...
set -eu
content() { cat /etc/prometheus/*/* | cksum; }
reload_on_change() {
    seen=$(content)
    while sleep 3; do
        now=$(content)
        [ "$now" = "$seen" ] || kill -HUP $$
        seen=$now
    done
}
reload_on_change &
exec prometheus "$@"
"""

# Byte code that is marked by hashes, because times are not kept.
_COMPILE = "python3 -m compileall -q --invalidation-mode unchecked-hash /usr/local/lib/python3.13/dist-packages"

_NOBODY_BUT_NONROOT = {
    "etc/passwd": "root:x:0:0::/:/sbin/nologin\nnonroot:x:65532:65532::/:/sbin/nologin\n",
    "etc/group": "root:x:0:\nnonroot:x:65532:\n",
    "etc/ssl/certs/.keep": "",
}

PLUGIN: Final = "usr/lib/{multiarch}/slurm-wlm/isthmus_jail.so"
ENTER: Final = "usr/sbin/isthmus-enter"
COMPLETE: Final = "usr/sbin/isthmus-complete"


SLURMS: Final[Mapping[str, Suite]] = {"26.05": "forky", "24.11": "trixie"}
"""The versions of Slurm that there are images of, the newest first, and the suite of Debian that has each."""


def _slurm(version: str, suite: Suite) -> tuple[Layer, ...]:
    """All daemons and commands; on top of them, what people want where they log in."""
    return (
        Layer(
            name=f"slurm-{version}",
            parent=f"debian-{suite}",
            suite=suite,
            packages=_SLURM,
            script=_SLURM_USERS,
            remove=_SLURM_KEYS,
            expects=("slurmctld", f"{version}."),
        ),
        Layer(
            name=f"login-{version}",
            parent=f"slurm-{version}",
            suite=suite,
            packages=_LOGIN,
            files={**_KNOWN_HOSTS, **_MANUALS},
            script=_LOGIN_SESSIONS,
            remove=_SSH_HOST_KEYS,
        ),
    )


def _spank(version: str, suite: Suite) -> tuple[Layer, ...]:
    """Compile our plugin and programs against this Slurm's headers, and put them, without the compiler, on top.

    Slurm's commands load what plugstack.conf names, too. It comes last, so that a change to it is quickly made.
    """
    tools, plugin = f"spank-tools-{version}", f"spank-{version}"
    return (
        Layer(
            name=tools,
            parent=f"debian-{suite}",
            suite=suite,
            packages=("gcc", "libc6-dev", "libslurm-dev", "make"),
            expects=("libslurm-dev", f"{version}."),
        ),
        Layer(
            name=plugin,
            parent=tools,
            source="spank",
            script="make --always-make --directory=/usr/src/isthmus-spank analyze install",
        ),
        *(
            Layer(
                name=f"{image}-spank-{version}",
                parent=f"{image}-{version}",
                copies=tuple((plugin, file) for file in files),
            )
            for image, files in (("slurm", (PLUGIN, ENTER, COMPLETE)), ("login", (PLUGIN, ENTER)))
        ),
    )


_LAYERS: Final = (
    Layer(name="debian-forky", suite="forky", packages=("ca-certificates",)),
    Layer(name="debian-trixie", suite="trixie", packages=("ca-certificates",)),
    *(layer for version, suite in SLURMS.items() for layer in (*_slurm(version, suite), *_spank(version, suite))),
    Layer(
        name="mariadb",
        parent="debian-trixie",
        suite="trixie",
        packages=("mariadb-server", "mariadb-client"),
        files={"usr/local/bin/mariadb-ensure-data": _ENSURE_DATABASE},
        script=_DATABASE,
        # The package makes a database when it is installed; a volume gets its own.
        remove=("var/lib/mysql/*", "etc/mysql/debian.cnf"),
        expects=("mariadb-server", "1:11.8."),
    ),
    Layer(
        name="python",
        parent="debian-trixie",
        suite="trixie",
        packages=("python3", "openssh-client", "procps"),
        script="useradd --uid 65532 --user-group --create-home --shell /usr/sbin/nologin nonroot",
        expects=("python3", "3.13."),
    ),
    Layer(
        name="packages",
        parent="python",
        source="wheels",
        script=_COMPILE,
    ),
    Layer(
        name="isthmus",
        parent="packages",
        source="isthmus",
        # The second is the operator's name in a list of processes, where the chart uses Soperator's names.
        files=dict.fromkeys(
            ("usr/local/bin/isthmus", "usr/local/bin/slurm_operator"),
            "#!/usr/bin/python3\nimport sys\n\nfrom isthmus.cli.main import main\n\nsys.exit(main())\n",
        ),
        script=f"{_COMPILE}/isthmus",
    ),
    Layer(name="catatonit", parent="debian-trixie", suite="trixie", packages=("catatonit",)),
    Layer(name="pause", copies=(("catatonit", "usr/bin/catatonit"),), files=_NOBODY_BUT_NONROOT),
    Layer(name="coredns", source="binary", files=_NOBODY_BUT_NONROOT),
    Layer(name="jobset", source="binary", files=_NOBODY_BUT_NONROOT),
    Layer(name="lws", source="binary", files=_NOBODY_BUT_NONROOT),
    Layer(name="metrics-server", source="binary", files=_NOBODY_BUT_NONROOT),
    # Of the stable release, whose package still has web pages; version 3 in the testing release comes without.
    Layer(
        name="prometheus",
        parent="debian-trixie",
        suite="trixie",
        packages=("prometheus", "prometheus-alertmanager"),
        files={"usr/local/bin/prometheus-reloading": _RELOADING},
        expects=("prometheus", "2.53."),
    ),
)

_IMAGES: Final = (
    *(
        Recipe(
            name=f"{kind}-{version}",
            tag=f"{kind}:{version}",
            layer=f"{kind}-spank-{version}",
            title=title.format(version=version),
        )
        for kind, title in (
            ("slurm", "Slurm {version}: all daemons and commands"),
            ("login", "A login node for Slurm {version}"),
        )
        for version in SLURMS
    ),
    Recipe(name="mariadb", tag="mariadb:11.8", layer="mariadb", title="MariaDB for Slurm's accounting"),
    Recipe(
        name="isthmus",
        tag=f"isthmus:{isthmus.__version__}",
        layer="isthmus",
        entrypoint=("/usr/local/bin/isthmus",),
        user="65532:65532",
        title="Isthmus itself",
    ),
    # -P waits for a signal and reaps what is left to it, which is all that a pod's first container has to do.
    Recipe(
        name="pause",
        tag="pause:1",
        layer="pause",
        entrypoint=("/usr/bin/catatonit", "-P"),
        user="65532:65532",
        title="The container that holds a pod's namespaces",
    ),
    Recipe(name="coredns", tag="coredns:1.15.0", layer="coredns", entrypoint=("/coredns",), title="CoreDNS"),
    Recipe(
        name="jobset",
        tag="jobset:0.11.1",
        layer="jobset",
        entrypoint=("/jobset",),
        user="65532:65532",
        title="JobSet",
    ),
    Recipe(
        name="lws", tag="lws:0.8.0", layer="lws", entrypoint=("/lws",), user="65532:65532", title="LeaderWorkerSet"
    ),
    Recipe(
        name="metrics-server",
        tag="metrics-server:0.9.0",
        layer="metrics-server",
        entrypoint=("/metrics-server",),
        user="65532:65532",
        title="metrics-server, for kubectl top",
    ),
    Recipe(
        name="prometheus",
        tag="prometheus:2.53",
        layer="prometheus",
        entrypoint=("/usr/bin/prometheus",),
        user="65532:65532",
        title="Prometheus, promtool and Alertmanager",
    ),
)

LAYERS: Final = {layer.name: layer for layer in _LAYERS}
IMAGES: Final = {image.name: image for image in _IMAGES}


def layer_for(name: str, architecture: Architecture) -> Layer:
    layer = LAYERS[name]
    copies = tuple((origin, path.format(multiarch=architecture.multiarch)) for origin, path in layer.copies)
    return replace(layer, copies=copies)


def running(name: str) -> list[str]:
    """List what a layer takes to make it, itself included, where programs of the image itself have to run.

    Debian's packages configure themselves, the plugin is compiled, Python compiles to byte code.
    """
    layer = LAYERS[name]
    below = [
        each
        for origin in (layer.parent, *(origin for origin, _ in layer.copies))
        if origin
        for each in running(origin)
    ]
    return list(dict.fromkeys([*below, *([name] if layer.packages or layer.script else [])]))


def reference(name: str) -> str:
    """Return the name under which Kubernetes finds the image of this recipe."""
    return f"isthmus.local/{IMAGES[name].tag}"
