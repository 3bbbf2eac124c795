"""Addresses of mail servers."""

import pytest

from isthmus.errors import Terminal
from isthmus.health.notifications import mail_server


@pytest.mark.parametrize(
    ("url", "host", "port", "user", "password", "tls"),
    [
        ("smtp://mail", "mail", 25, "", "", False),
        ("smtp://me%40x:p%3Aw@mail", "mail", 587, "me@x", "p:w", False),
        ("smtps://me:pw@mail", "mail", 465, "me", "pw", True),
        ("smtp://mail:2525", "mail", 2525, "", "", False),
    ],
)
def test_an_address_is_read(url: str, host: str, port: int, user: str, password: str, *, tls: bool) -> None:
    found = mail_server(url)
    assert (found.host, found.port, found.user, found.password, found.tls) == (host, port, user, password, tls)
    assert not password or password not in repr(found)


@pytest.mark.parametrize("url", ["", "relay", "http://relay", "smtp://", "smtp://relay:port"])
def test_another_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(Terminal, match="mail server is not valid") as told:
        mail_server(url)
    assert not url or url not in str(told.value).replace("smtp://user:password@host:port", "")
