"""The page in a real browser, on a real API server and a real Slurm."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import expect

from isthmus.domain.web.history import SERIES
from tests.bed.browser import Watched, findings
from tests.bed.waiting import eventually
from tests.bed.webpage import see, serving
from tests.flows.web.conftest import HOSTILE, Enter, Site

pytestmark = pytest.mark.long

AT_ONCE = """keys => {
  const press = (key) => new KeyboardEvent("keydown", { key, bubbles: true });
  for (const key of keys) document.activeElement.dispatchEvent(press(key));
}"""
"""Types faster than anybody: before a view that a key chose is drawn, the next one is heard."""

VIEWS = ("now", "queue", "why", "people", "history")


def ask(site: Site, path: str, **options: Any) -> tuple[int, dict[str, object]]:
    return ask_at(site.url, path, **options)


def ask_at(
    url: str, path: str, *, body: object = None, cookie: str = "", **headers: str
) -> tuple[int, dict[str, object]]:
    """Ask the server without a browser."""
    data = None if body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): it for name, it in headers.items()}
    request = Request(f"{url}{path}", data=data, headers=named)  # noqa: S310 - our own
    if data:
        request.add_header("Content-Type", "application/json")
    if cookie:
        request.add_header("Cookie", cookie)
    try:
        with urlopen(request, timeout=60) as answer:  # noqa: S310 - our own
            return answer.status, json.loads(answer.read() or b"{}")
    except HTTPError as error:
        return error.code, json.loads(error.read() or b"{}")


def session(watched: Watched) -> tuple[str, str]:
    """The cookie of a page that is logged in, and its secret against forged requests."""
    (cookie,) = watched.page.context.cookies()
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
    csrf = watched.page.evaluate("fetch('/api/me').then(it => it.json()).then(it => it.csrf)")
    return f"{cookie['name']}={cookie['value']}", str(csrf)


def test_without_login_there_is_only_the_login_page(site: Site, fresh: Callable[..., Watched]) -> None:
    watched = fresh()
    page = watched.page
    page.goto(f"{site.url}/#/queue")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    expect(page.get_by_role("navigation")).to_have_count(0)
    page.get_by_label("Kubernetes token").fill("not-a-token")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("does not accept this token")
    assert findings(page) == []
    for path in (
        "me",
        "snapshot",
        "stream",
        "why/job/1",
        "why/pod/a/b",
        "node/n1",
        "log/pod/a/b",
        "log/job/1",
        "people",
        "history/0",
    ):
        assert ask(site, f"/api/{path}")[0] == 401, path
    assert ask(site, "/api/act", body={"action": "cancel", "target": "1"})[0] == 401


def test_each_view_shows_what_is_there_and_stays_within_the_policy(site: Site, enter: Enter, unique: str) -> None:
    job = site.submit(f"--job-name={unique}", "--begin=now+1hour")
    watched = enter("viewer")
    page = watched.page
    expect(page.get_by_role("heading", name="What waits, and why")).to_be_visible()
    expect(page.get_by_text("Its begin time has not come yet")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("Grid of 4 nodes"))).to_be_visible()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    see(page, site.url, f"queue?text={unique}")
    expect(page.get_by_role("row").filter(has_text=unique)).to_contain_text("Its begin time has not come yet")
    see(page, site.url, f"why/job/{job}")
    expect(page.get_by_text("It waits:")).to_be_visible()
    expect(page.locator(".gates li.waiting")).to_contain_text("begin time")
    start = page.get_by_role("region", name="Expected start")
    expect(start).to_contain_text(re.compile(r"in (59|60) min|in 1 h"))
    expect(start).to_contain_text("low confidence Not before its begin time, and then in its turn.")
    see(page, site.url, f"why/pod/{site.namespace}/waits")
    expect(page.get_by_role("heading", level=1)).to_contain_text("waits")
    expect(page.locator(".gates li.waiting").first).to_contain_text("it has no job in Slurm")
    see(page, site.url, "node/e1")
    expect(page.get_by_role("link", name=re.compile("placed"))).to_be_visible()
    see(page, site.url, "people")
    expect(page.get_by_role("row").filter(has_text="alice")).to_be_visible()
    see(page, site.url, "history")
    expect(page.get_by_role("heading", name="Nodes")).to_be_visible()
    assert watched.errors == []
    assert {it.partition("//")[2].partition("/")[0] for it in watched.asked} == {site.url.partition("//")[2]}
    site.slurm.command("scancel", job)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_shut_out_of_any_view(site: Site, enter: Enter, scheme: str) -> None:
    job = site.submit("--hold")
    page = enter("operator", color_scheme=scheme).page
    for view in (*VIEWS, "node/e1", f"why/job/{job}", f"why/pod/{site.namespace}/placed"):
        see(page, site.url, view)
        expect(page.locator("main .loading")).to_have_count(0)
        expect(page.locator("main")).not_to_be_empty()
        assert findings(page) == [], view
    site.slurm.command("scancel", job)


def test_the_page_fits_a_phone(site: Site, enter: Enter) -> None:
    page = enter("viewer", viewport={"width": 360, "height": 740}).page
    for view in (*VIEWS, "node/e1", f"why/pod/{site.namespace}/waits"):
        see(page, site.url, view)
        expect(page.locator("main .loading")).to_have_count(0)
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0, view


def test_a_change_in_slurm_is_seen_without_asking(site: Site, enter: Enter, unique: str) -> None:
    page = enter("viewer", f"queue?text={unique}").page
    expect(page.get_by_text("Nothing matches")).to_be_visible()
    job = site.submit(f"--job-name={unique}")
    row = page.get_by_role("row").filter(has_text=unique)
    expect(row).to_contain_text("running")
    site.slurm.command("scancel", job)
    expect(row).to_contain_text("cancelled")


def test_the_keyboard_is_enough(site: Site, enter: Enter, unique: str) -> None:
    job = site.submit(f"--job-name={unique}", "--hold")
    page = enter("viewer").page
    page.evaluate(AT_ONCE, "2/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.get_by_role("grid", name="Queue").focus()
    page.keyboard.press("1")
    expect(page.get_by_role("img", name=re.compile("Grid of"))).to_be_visible()
    page.keyboard.press("2")
    expect(page.get_by_role("grid", name="Queue")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(unique)
    expect(page.get_by_role("row").filter(has_text=unique)).to_be_visible()
    page.get_by_role("grid", name="Queue").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=re.compile(f"^{job} "))).to_be_visible()
    page.keyboard.press("1")
    page.get_by_role("img", name=re.compile("Grid of")).focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".picked")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="On it now")).to_be_visible()
    site.slurm.command("scancel", job)


def test_the_queue_is_sorted_and_filtered_by_the_keyboard_too(site: Site, enter: Enter, unique: str) -> None:
    names = [f"{unique}-{it}" for it in "abc"]
    jobs = [site.submit(f"--job-name={it}", "--hold") for it in (names[1], names[0], names[2])]
    page = enter("viewer", f"queue?text={unique}").page
    rows = page.get_by_role("row").filter(has_text=unique)
    expect(rows).to_have_count(3)
    by_name = page.get_by_role("button", name=re.compile("^Name"))
    for order, direction in ((names, "ascending"), (names[::-1], "descending")):
        by_name.focus()
        page.keyboard.press("Enter")
        expect(rows).to_contain_text(order)
        expect(page.get_by_role("columnheader", name=re.compile("^Name"))).to_have_attribute("aria-sort", direction)
    page.get_by_role("combobox", name="State").select_option("Running")
    expect(page.get_by_text("Nothing matches")).to_be_visible()
    page.get_by_role("combobox", name="State").select_option("Waiting")
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="Pods", exact=True).click()
    expect(rows).to_have_count(0)
    site.slurm.command("scancel", *jobs)


def test_the_past_is_behind_a_slider(site: Site, enter: Enter) -> None:
    watched = enter("viewer")
    cookie, _ = session(watched)

    def waiting() -> list[int]:
        _, told = ask(site, "/api/history/0", cookie=cookie)
        columns: Any = told["columns"]
        return list(columns[list(SERIES).index("waiting") + 1])

    eventually(waiting, "a sample", holds=lambda it: it and it[-1] < 37)
    job = site.submit("--hold", "--array=1-37")
    seen = eventually(waiting, "a sample with the array", holds=lambda it: it[-1] >= 37)
    page = watched.page
    see(page, site.url, "history")
    shown = page.get_by_role("region", name="Jobs", exact=True).get_by_role("listitem").filter(has_text="waiting")
    expect(shown).to_have_text(f"waiting {seen[-1]}")
    page.get_by_role("slider").focus()
    page.keyboard.press("Home")
    expect(shown).to_have_text(f"waiting {seen[0]}")
    page.get_by_role("button", name="Last day").click()
    expect(page.get_by_role("button", name="Last day")).to_have_attribute("aria-pressed", "true")
    site.slurm.command("scancel", job)


def test_what_was_found_on_a_node_is_shown_with_what_comes_next(site: Site, enter: Enter) -> None:
    meta = {"name": "e2", "namespace": site.namespace}
    made = {"apiVersion": "isthmus.dev/v1alpha1", "kind": "NodeHealth", "metadata": meta}
    made["spec"] = {"cluster": "tried", "node": "e2"}
    site.plane.kubectl("apply", "--filename=-", stdin=json.dumps(made))
    page = enter("viewer", "node/e2").page
    shown = page.get_by_role("region", name="Findings")
    found = {"source": "check", "check": "gpu-links", "evidence": f"GPU 3 {HOSTILE}", "count": 2}
    status = {"phase": "OutOfService", "message": "the ladder is at its end", "findings": [found]}
    whose = ("nodehealths.isthmus.dev", "e2", f"--namespace={site.namespace}")
    patch = f"--patch={json.dumps({'status': status})}"
    site.plane.kubectl("patch", *whose, "--subresource=status", "--type=merge", patch)
    expect(shown).to_contain_text("The ladder is at its end")
    expect(shown.get_by_role("listitem")).to_contain_text(f"gpu-links seenGPU 3 {HOSTILE}by check, 2 times")
    expect(shown).to_contain_text("an administrator returns it: isthmus health release e2")
    see(page, site.url, "now")
    problem = page.get_by_role("region", name="Problems").get_by_role("listitem").filter(has_text="e2")
    expect(problem).to_contain_text("health: OutOfService")
    site.plane.kubectl("delete", *whose)
    expect(problem).to_have_count(0)


def test_hostile_names_are_text(site: Site, enter: Enter, unique: str) -> None:
    name = f"{unique} {HOSTILE} {'x' * 700}"
    job = site.submit(f"--job-name={name}", f"--comment={HOSTILE * 10}", "--hold")
    site.slurm.scontrol("update", "nodename=e3", "state=drain", f"reason={HOSTILE} {'x' * 10_000}")
    watched = enter("viewer", f"queue?text={unique}")
    page = watched.page
    expect(page.get_by_role("row").filter(has_text=unique)).to_contain_text("<script>window.pwned=1</script>")
    for view in ("now", f"why/job/{job}", "node/e3", "why"):
        see(page, site.url, view)
        expect(page.get_by_text("onerror=window.pwned").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert page.evaluate("window.pwned") is None
    assert watched.errors == []
    site.slurm.scontrol("update", "nodename=e3", "state=resume")
    site.slurm.command("scancel", job)


def test_a_slurmctld_that_dies_leaves_what_was_known(site: Site, enter: Enter, unique: str) -> None:
    job = site.submit(f"--job-name={unique}", "--hold")
    page = enter("viewer", f"queue?text={unique}").page
    row = page.get_by_role("row").filter(has_text=unique)
    expect(row).to_be_visible()
    site.slurm.stop("slurmctld")
    expect(page.get_by_role("alert")).to_contain_text("Slurm has not answered")
    expect(row).to_be_visible()
    see(page, site.url, f"why/job/{job}")
    expect(page.get_by_role("heading", name=re.compile(f"^{job} "))).to_be_visible()
    see(page, site.url, "now")
    expect(page.get_by_text("Jobs waiting")).to_be_visible()
    expect(page.get_by_text("Nothing waits")).to_have_count(0)
    site.slurm.start("slurmctld")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    site.slurm.command("scancel", job)


def test_a_slurm_that_never_answered_is_not_an_empty_one(
    site: Site, fresh: Callable[..., Watched], tmp_path: Path
) -> None:
    with serving(
        site.plane.kubeconfig,
        rest_url="http://127.0.0.1:9",
        token=site.slurm.token("slurm"),
        log=tmp_path / "web.log",
        more=("--insecure-no-login",),
    ) as url:
        page = fresh().page
        for view in ("now", "queue", "why", "people"):
            see(page, url, view)
            expect(page.get_by_text("Slurm has not answered yet").first).to_be_visible()
            for lie in ("Nothing waits", "The queue is empty", "Jobs running", "Nobody has jobs"):
                expect(page.get_by_text(lie)).to_have_count(0)


def test_people_see_what_they_may(site: Site, enter: Enter, unique: str) -> None:
    jobs = [site.submit(f"--job-name={unique}-{user}", "--hold", user=user) for user in ("alice", "bob")]
    bob = enter("bob", f"queue?text={unique}").page
    expect(bob.get_by_text("You see your own jobs.")).to_be_visible()
    expect(bob.get_by_role("row").filter(has_text=f"{unique}-bob")).to_be_visible()
    expect(bob.get_by_role("row").filter(has_text=f"{unique}-alice")).to_have_count(0)
    see(bob, site.url, f"why/job/{jobs[0]}")
    expect(bob.get_by_text("or you may not see it")).to_be_visible()
    see(bob, site.url, f"why/pod/{site.namespace}/waits")
    expect(bob.get_by_text("or you may not see it")).to_be_visible()
    stranger = enter("stranger").page
    expect(stranger.get_by_role("alert")).to_contain_text("You may see nothing here")
    site.slurm.command("scancel", *jobs)


def test_people_act_under_their_own_names(site: Site, enter: Enter, unique: str) -> None:
    job = site.submit(f"--job-name={unique}", user="alice")
    eventually(lambda: site.state(job), "a running job", holds=lambda it: it == "RUNNING")
    page = enter("alice", f"why/job/{job}").page
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("in Slurm alice")
    dialog.get_by_role("button", name="Keep it as it is").click()
    assert site.state(job) == "RUNNING"
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.locator(".toast")).to_contain_text(f"Cancelled job {job}")
    eventually(lambda: site.state(job), "a cancelled job", holds=lambda it: it == "CANCELLED")
    told = site.plane.kubectl("get", "events", "--all-namespaces", "--output=json")
    notes = [it["message"] for it in json.loads(told)["items"] if it["reason"] == "WebAction"]
    assert f"system:serviceaccount:{site.namespace}:alice cancelled job {job}" in notes


def test_slurm_refuses_what_a_user_may_not_do(site: Site, enter: Enter, unique: str) -> None:
    job = site.submit(f"--job-name={unique}", "--begin=now+1hour", user="bob")
    page = enter("alice", f"why/job/{job}").page
    page.get_by_role("button", name="Hold", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Hold", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    assert site.state(job) == "PENDING"
    assert "JobHeld" not in site.slurm.scontrol("show", "job", job)
    site.slurm.command("scancel", job)


def test_an_operator_holds_releases_requeues_drains_resumes_and_uncordons(
    site: Site, enter: Enter, unique: str
) -> None:
    job = site.submit(f"--job-name={unique}", "--begin=now+1hour", user="bob")
    runs = site.submit(f"--job-name={unique}", "--requeue", user="bob")
    page = enter("operator", f"why/job/{job}").page

    def act(name: str, *, reason: str = "") -> None:
        page.get_by_role("button", name=name, exact=True).click()
        dialog = page.get_by_role("dialog")
        if reason:
            dialog.get_by_label("Reason").fill(reason)
        dialog.get_by_role("button", name=name, exact=True).click()
        expect(dialog).to_be_hidden()

    act("Hold")
    eventually(lambda: site.slurm.scontrol("show", "job", job), "a held job", holds=lambda it: "JobHeld" in it)
    act("Release")
    eventually(lambda: site.slurm.scontrol("show", "job", job), "a free job", holds=lambda it: "JobHeld" not in it)
    see(page, site.url, f"why/job/{runs}")
    act("Requeue")
    eventually(lambda: site.slurm.scontrol("show", "job", runs), "a restart", holds=lambda it: "Restarts=1" in it)
    see(page, site.url, "node/e2")
    act("Drain", reason="swap the disk")
    eventually(
        lambda: site.slurm.scontrol("show", "node", "e2"), "a reason", holds=lambda it: "swap the disk" in it
    )
    expect(page.get_by_text("swap the disk").first).to_be_visible()
    act("Resume")
    expect(page.get_by_text("swap the disk")).to_have_count(1)  # in the list of states, where it was
    site.plane.kubectl("cordon", "e2")
    act("Uncordon")
    expect(page.get_by_role("button", name="Uncordon")).to_have_count(0)
    site.slurm.command("scancel", job, runs)


def test_who_may_not_act_is_offered_nothing_and_refused(site: Site, enter: Enter, unique: str) -> None:
    job = site.submit(f"--job-name={unique}", "--hold")
    watched = enter("viewer", f"why/job/{job}")
    page = watched.page
    expect(page.get_by_role("heading", name=re.compile(f"^{job} "))).to_be_visible()
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)
    cookie, csrf = session(watched)
    for act in (
        *({"action": it, "target": job} for it in ("cancel", "hold", "release", "requeue")),
        {"action": "drain", "target": "e1", "reason": "no"},
        {"action": "resume", "target": "e1"},
        {"action": "uncordon", "target": "e1"},
    ):
        status, told = ask(site, "/api/act", body=act, cookie=cookie, X_Isthmus_Csrf=csrf)
        assert (status, bool(told["error"])) == (403, True), act
    assert site.state(job) == "PENDING"
    site.slurm.command("scancel", job)


def test_a_forged_request_does_nothing(site: Site, enter: Enter, unique: str) -> None:
    job = site.submit(f"--job-name={unique}", "--hold")
    cookie, csrf = session(enter("operator"))
    cancel = {"action": "cancel", "target": job}
    assert ask(site, "/api/act", body=cancel, cookie=cookie)[0] == 403
    assert ask(site, "/api/act", body=cancel, cookie=cookie, X_Isthmus_Csrf="guess")[0] == 403
    from_elsewhere = {"X_Isthmus_Csrf": csrf, "Origin": "http://evil.example"}
    assert ask(site, "/api/act", body=cancel, cookie=cookie, **from_elsewhere)[0] == 403
    assert site.state(job) == "PENDING"
    assert ask(site, "/api/act", body=cancel, cookie=cookie, X_Isthmus_Csrf=csrf)[0] == 200
    eventually(lambda: site.state(job), "a cancelled job", holds=lambda it: it == "CANCELLED")


def test_logs_are_read_with_the_rights_of_the_reader(site: Site, enter: Enter) -> None:
    watched = enter("viewer", f"why/pod/{site.namespace}/waits")
    watched.page.get_by_role("button", name="Follow").click()
    expect(watched.page.locator("pre.log")).to_contain_text('cannot get resource "pods/log"')
    cookie, _ = session(watched)
    assert ask(site, f"/api/log/pod/{site.namespace}/waits", cookie=cookie)[0] == 403


def test_the_file_of_a_job_is_for_those_who_may_see_the_job(site: Site, enter: Enter, unique: str) -> None:
    job = site.submit(f"--job-name={unique}", "--hold")
    bob, viewer = (session(enter(who))[0] for who in ("bob", "viewer"))
    assert ask(site, f"/api/log/job/{job}", cookie=bob)[0] == 404
    status, told = ask(site, f"/api/log/job/{job}", cookie=viewer)
    assert (status, "no slurmctld of a Slurm cluster runs in this Kubernetes" in str(told)) == (422, True)
    site.slurm.command("scancel", job)


def test_what_a_job_used_and_what_an_account_may_is_told_by_the_accounts(
    site: Site, enter: Enter, unique: str
) -> None:
    site.slurm.command("sacctmgr", "-i", "add", "account", unique, "grpjobs=7")
    job = site.submit(f"--job-name={unique}", script="timeout 1 sh -c 'while :; do :; done'; true")
    page = enter("viewer", f"why/job/{job}").page
    expect(page.get_by_text("CPU time")).to_be_visible()
    see(page, site.url, "people")
    expect(page.get_by_role("row").filter(has_text=unique)).to_contain_text("7 jobs")


def test_logging_out_ends_the_session(site: Site, enter: Enter) -> None:
    watched = enter("viewer")
    cookie, _ = session(watched)
    assert ask(site, "/api/me", cookie=cookie)[0] == 200
    watched.page.get_by_role("button", name="Log out").click()
    expect(watched.page.get_by_role("heading", name="Log in")).to_be_visible()
    eventually(lambda: ask(site, "/api/me", cookie=cookie)[0], "a session that is over", holds=lambda it: it == 401)


def test_a_job_is_explained_after_slurm_has_forgotten_it(site: Site, enter: Enter, unique: str) -> None:
    first = site.submit("--hold")
    job = site.submit(f"--job-name={unique}", f"--dependency=afterany:{first}")
    page = enter("viewer", f"why/job/{job}").page
    expect(page.get_by_text("Another job has to end first", exact=False).first).to_be_visible()
    expect(page.get_by_role("link", name=re.compile(f"Job {first} of alice has to end first"))).to_be_visible()
    site.slurm.command("scancel", first, job)
    expect(page.get_by_text("was cancelled before it had nodes").first).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="waiting")).to_contain_text("Dependency")
