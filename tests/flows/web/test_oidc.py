"""Single sign-on: a real browser, a provider of OpenID Connect, and a real API server that trusts it."""

from collections.abc import Callable, Iterator

import pytest
import yaml
from playwright.sync_api import expect

from tests.bed import oidc
from tests.bed.browser import Watched
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.webpage import PORT, serving
from tests.flows.web.test_page import ask_at

ANN = "ann@example.org"


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[oidc.Provider]:
    # Tokens end after less than the half minute before which they are renewed: each request asks for another.
    with oidc.provider(tmp_path_factory.mktemp("oidc"), lifetime=25) as running:
        yield running


@pytest.fixture(scope="module")
def url(provider: oidc.Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page without a Slurm, on an API server of its own."""
    home = tmp_path_factory.mktemp("page")
    (home / "secret").write_text(f"{oidc.SECRET}\n")
    rules = [{"apiGroups": ["web.isthmus.dev"], "resources": ["jobs", "nodes"], "verbs": ["list"]}]
    with ControlPlaneBed(controllers=False, apiserver_flags=provider.flags) as plane:
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "viewer"}}
        plane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump({**role, "rules": rules}))
        plane.kubectl("create", "clusterrolebinding", "ann", "--clusterrole=viewer", f"--user={ANN}")
        with serving(
            plane.kubeconfig,
            rest_url="http://127.0.0.1:9",
            token="no.real.token",
            log=home / "web.log",
            more=(
                f"--oidc-issuer={provider.issuer}",
                f"--oidc-client-id={provider.client}",
                f"--oidc-client-secret={home / 'secret'}",
                f"--oidc-ca={provider.ca}",
                f"--public-url=http://{{address}}:{PORT}",
            ),
        ) as served:
            yield served


def test_somebody_logs_in_at_the_provider_and_stays_until_it_says_no(
    provider: oidc.Provider, url: str, fresh: Callable[..., Watched]
) -> None:
    watched = fresh(ignore_https_errors=True)
    page = watched.page
    page.goto(f"{url}/#/queue")
    page.get_by_role("link", name="Log in with single sign-on").click()
    page.get_by_label("Name").fill(ANN)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text(ANN, exact=True)).to_be_visible()
    (cookie,) = [it for it in page.context.cookies() if it["name"] == "__Host-isthmus"]
    held = f"{cookie['name']}={cookie['value']}"
    before = provider.renewals
    assert ask_at(url, "/api/me", cookie=held)[1]["user"] == ANN
    assert provider.renewals > before, "a token that is about to end is replaced"
    assert watched.errors == []


def test_what_goes_wrong_there_is_told_here(
    url: str, provider: oidc.Provider, fresh: Callable[..., Watched]
) -> None:
    page = fresh(ignore_https_errors=True).page
    page.goto(url)
    page.get_by_role("link", name="Log in with single sign-on").click()
    page.get_by_label("Name").fill("nobody")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("The provider refuses it: access_denied")
    provider.refuses = True
    try:
        page.get_by_role("link", name="Log in with single sign-on").click()
        page.get_by_label("Name").fill(ANN)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("refuses it: invalid_client")
    finally:
        provider.refuses = False


def test_a_login_that_was_begun_elsewhere_is_none(url: str, fresh: Callable[..., Watched]) -> None:
    page = fresh().page
    page.goto(f"{url}/api/oidc/return?code=x&state=guess")
    expect(page.get_by_role("alert")).to_contain_text("This login was not started here")
    expect(page.get_by_role("navigation")).to_have_count(0)
