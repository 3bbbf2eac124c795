"""People who log in: SSH to the login node of a site, from outside the cluster, by the NodePort of its Service."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.bed.commands import CommandError, Done, attempt
from tests.e2e.site import Site


@dataclass(frozen=True)
class Ssh:
    """Somebody's key, in a directory that also holds the host keys that were seen."""

    site: Site
    home: Path

    @classmethod
    def with_new_key(cls, site: Site, home: Path) -> "Ssh":
        """Make a key that nobody had before."""
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / "id"], check=True)
        return cls(site, home)

    @property
    def key(self) -> Path:
        return self.home / "id"

    @property
    def public_key(self) -> str:
        return self.key.with_suffix(".pub").read_text().strip()

    @property
    def address(self) -> str:
        """Where a NodePort is reached."""
        return self.site.ground.cluster.cluster.nodes[0].address

    @property
    def port(self) -> str:
        """The port of nodes under which people log in.

        Tests let the API server choose it. One that they ask for may be taken for minutes by nobody: a server that
        was too slow to answer does not always give it back.
        """
        return str(self.site.get("service/login")["spec"]["ports"][0]["nodePort"])

    @property
    def options(self) -> list[str]:
        """What ssh, scp and sftp need to get in. The host has to be the one that it was the first time."""
        return [
            *("-i", str(self.key), "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "LogLevel=ERROR"),
            *("-o", "StrictHostKeyChecking=accept-new", "-o", f"UserKnownHostsFile={self.home}/known"),
            # Known by a name: a Service that was made anew has another port.
            *("-o", "HostKeyAlias=login"),
        ]

    def words(self, command: str, *options: str, user: str = "alice") -> list[str]:
        """Make the words by which a command is run over SSH."""
        return ["ssh", *self.options, *options, "-p", self.port, f"{user}@{self.address}", command]

    def attempt(self, command: str, *options: str, stdin: str = "", user: str = "alice") -> Done:
        """Run a command that may fail."""
        return attempt(*self.words(command, *options, user=user), stdin=stdin)

    def run(self, command: str, *options: str, stdin: str = "", user: str = "alice") -> str:
        """Run a command that has to succeed."""
        done = self.attempt(command, *options, stdin=stdin, user=user)
        if done.returncode:
            raise CommandError(f"{user}: {command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def session(self, command: str) -> "subprocess.Popen[str]":
        """Begin a command that takes a while."""
        return subprocess.Popen(self.words(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def reached(self) -> None:
        """Wait until somebody can log in: Services take a moment to lead to new pods."""
        self.site.eventually(
            lambda: self.attempt("true"), "sshd to be reached", holds=lambda it: it.returncode == 0
        )
