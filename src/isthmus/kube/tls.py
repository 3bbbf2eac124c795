"""TLS to the API server: which authorities are trusted, and our client certificate."""

import ssl
import tempfile
from pathlib import Path

from isthmus.errors import Terminal
from isthmus.kube.auth import Certificate


def trust(ca: str | None, *, insecure: bool = False) -> ssl.SSLContext:
    """Make TLS settings that believe one authority (PEM), or the machine's own where none is given."""
    try:
        context = ssl.create_default_context(cadata=ca)
    except (ssl.SSLError, ValueError) as error:
        raise Terminal("the certificate authority of the API server is not a certificate in PEM form") from error
    # Python 3.13 turned this on; cluster authorities are commonly made without the extensions it asks for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def present(context: ssl.SSLContext, certificate: Certificate) -> None:
    """Show this client certificate on connections made from now on."""
    # OpenSSL reads certificates from files only. The directory is ours alone, and gone a moment later.
    with tempfile.TemporaryDirectory(prefix="isthmus-") as directory:
        chain, key = Path(directory, "chain"), Path(directory, "key")
        chain.write_bytes(certificate.chain)
        key.write_bytes(certificate.key)
        try:
            context.load_cert_chain(chain, key, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            raise Terminal(
                f"the client certificate ({certificate!r}) and its key do not match, or are not PEM"
            ) from error


def _no_password() -> str:
    # Without this, OpenSSL would ask for the password on the terminal, and a daemon would hang.
    raise ValueError("the key is encrypted")
