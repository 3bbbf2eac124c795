"""sshd_config of login pods and workers: login by key, and the user's own settings.

Of a keyword, sshd takes the first that it reads; what follows a `Match` line holds for some only. So our settings
come first, without those that the user sets globally, and the user's text follows as it was written.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from isthmus.errors import Terminal

PLACE: Final = "/etc/ssh/isthmus"
"""Where the ConfigMap is mounted."""
HOST_KEYS: Final = "/run/secrets/ssh"
KEY_NAMES: Final = ("ssh_host_ed25519_key", "ssh_host_ecdsa_key", "ssh_host_rsa_key")

# sshd itself would refuse key files in a mounted directory, which it takes for world-writable.
_KEYS_COMMAND: Final = (
    '/bin/sh -c \'cat "/var/lib/extrausers/$1.authorized_keys" "/etc/ssh/isthmus/$1.authorized_keys"'
    ' 2> /dev/null; ! command -v sss_ssh_authorizedkeys > /dev/null || exec sss_ssh_authorizedkeys "$1"\' keys %u'
)

_ADDED_TO: Final = frozenset({"hostkey", "acceptenv", "include"})
"""Keywords that may be there several times, all of which count."""

_KEYWORDS: Final = frozenset(
    re.findall(
        r"\w+",
        """
    acceptenv addressfamily allowagentforwarding allowgroups allowstreamlocalforwarding allowtcpforwarding
    allowusers authenticationmethods authorizedkeyscommand authorizedkeyscommanduser authorizedkeysfile
    authorizedprincipalscommand authorizedprincipalscommanduser authorizedprincipalsfile banner
    casignaturealgorithms channeltimeout chrootdirectory ciphers clientalivecountmax clientaliveinterval
    compression denygroups denyusers disableforwarding exposeauthinfo fingerprinthash forcecommand gatewayports
    gssapiauthentication gssapicleanupcredentials gssapistorecredentialsonrekey gssapistrictacceptorcheck
    hostbasedacceptedalgorithms hostbasedauthentication hostbasedusesnamefrompacketonly hostcertificate hostkey
    hostkeyagent hostkeyalgorithms ignorerhosts ignoreuserknownhosts include ipqos kbdinteractiveauthentication
    kerberosauthentication kerberosgetafstoken kerberosorlocalpasswd kerberosticketcleanup kexalgorithms
    listenaddress logingracetime loglevel logverbose macs match maxauthtries maxsessions maxstartups modulifile
    passwordauthentication permitemptypasswords permitlisten permitopen permitrootlogin permittty permittunnel
    permituserenvironment permituserrc persourcemaxstartups persourcenetblocksize persourcepenalties
    persourcepenaltyexemptlist pidfile port printlastlog printmotd pubkeyacceptedalgorithms pubkeyauthentication
    pubkeyauthoptions rdomain refuseconnection rekeylimit requiredrsasize revokedkeys securitykeyprovider setenv
    sshdauthpath sshdsessionpath streamlocalbindmask streamlocalbindunlink strictmodes subsystem syslogfacility
    tcpkeepalive trustedusercakeys unusedconnectiontimeout usedns usepam versionaddendum x11displayoffset
    x11forwarding x11uselocalhost xauthlocation challengeresponseauthentication pubkeyacceptedkeytypes
    hostbasedacceptedkeytypes debianbanner
    """,
    )
)

DECIDED_FOR_LOGIN: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(("port", "listenaddress"), "use service.port and service.spec")
)
DECIDED_FOR_WORKERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("port", "listenaddress"), "remove it: workers listen on port 22"),
        "usepam": "remove it: PAM keeps out users without a job there",
    }
)
"""Keywords that are not the user's to set, and what to do instead."""

_LINE: Final = re.compile(r"([A-Za-z0-9]+)(?:\s*=\s*|\s+)(\S.*)")


class BadSshdConfig(Terminal):
    """The user's part of sshd_config cannot be taken."""


def checked(extra: str, *, decided: Mapping[str, str] = DECIDED_FOR_LOGIN) -> str:
    """Refuse what sshd would not start with, as far as known without it."""
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", extra):
        raise BadSshdConfig("extraSshdConfig contains control characters")
    for number, line in enumerate(extra.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        found = _LINE.fullmatch(stripped)
        if found is None:
            raise BadSshdConfig(
                f"line {number} of extraSshdConfig is not a setting: {stripped[:60]!r}",
                remedy="write: Keyword value",
            )
        if found[1].lower() not in _KEYWORDS:
            raise BadSshdConfig(f"line {number} of extraSshdConfig: sshd has no option {found[1]!r}")
        if remedy := decided.get(found[1].lower()):
            raise BadSshdConfig(f"line {number} of extraSshdConfig sets {found[1]}", remedy=remedy)
    return extra


def write(extra: str = "", *, root_keys: bool = False) -> str:
    """Write sshd_config, with the user's text at its end."""
    taken = set(_global_keywords(extra))
    lines = [f"{key} {value}" for key, value in _ours(root_keys=root_keys) if _identity(key, value) not in taken]
    return "".join(f"{line}\n" for line in lines) + (f"\n{extra.rstrip()}\n" if extra.strip() else "")


def _ours(*, root_keys: bool) -> Iterable[tuple[str, str]]:
    yield "Include", "/etc/ssh/sshd_config.d/*.conf"
    for name in KEY_NAMES:
        yield "HostKey", f"{HOST_KEYS}/{name}"
    yield "AuthorizedKeysCommand", _KEYS_COMMAND
    yield "AuthorizedKeysCommandUser", "nobody"
    yield "AuthorizedKeysFile", ".ssh/authorized_keys"
    yield "PermitRootLogin", "prohibit-password" if root_keys else "no"
    yield "PasswordAuthentication", "no"
    yield "KbdInteractiveAuthentication", "no"
    yield "UsePAM", "yes"
    yield "UseDNS", "no"
    yield "X11Forwarding", "yes"
    yield "PrintMotd", "no"
    yield "AcceptEnv", "LANG LC_* COLORTERM"
    yield "Subsystem", "sftp internal-sftp"
    # Notices within minutes that the other end is gone, and keeps quiet connections through gateways.
    yield "ClientAliveInterval", "60"
    yield "LogLevel", "INFO"


def _identity(key: str, value: str) -> str:
    """What a setting sets: subsystems are distinguished by their names."""
    keyword = key.lower()
    return f"subsystem {value.split(maxsplit=1)[0].lower()}" if keyword == "subsystem" else keyword


def _global_keywords(extra: str) -> Iterator[str]:
    """List what the text sets globally, which is before the first Match."""
    for line in extra.splitlines():
        found = _LINE.fullmatch(line.strip())
        if found is None:
            continue
        if found[1].lower() == "match":
            return
        if found[1].lower() not in _ADDED_TO:
            yield _identity(found[1], found[2])
