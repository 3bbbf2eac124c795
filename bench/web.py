#!/usr/bin/env -S sh -c 'd=${0%/*}/..; PYTHONPATH=$d exec "$d/.venv/bin/python" -P "$0" "$@"'
"""The web page: what viewers cost, how soon a browser shows it, and how soon it shows a change in a real Slurm.

viewers   1,000 open pages, 50 changes a second: processor time and memory of the server
first     the first view of 5,000 nodes and 20,000 jobs in Chromium, and scrolling through the queue
visible   a job that is cancelled in a real Slurm, until Chromium shows it
size      code of the page on the wire
"""

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page

from bench.harness import Figure, Options, figure, main, note
from bench.process import Process
from isthmus.runtime import loop
from isthmus.web import assets
from tests.bed.addresses import loopback_address
from tests.bed.browser import running
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.bed.waiting import eventually

_FEED = Path(__file__).parent / "course" / "webfeed.py"
_ISTHMUS = Path(sys.executable).with_name("isthmus")
_PORT = 8082
_MEASURED = 30.0
_CHANGES = 50
_TRIES = 5
_AT_ONCE = 50


@contextlib.contextmanager
def feeding(*, jobs: int, nodes: int, changes: int = _CHANGES) -> Iterator[tuple[str, Process]]:
    """Serve the page with rows of its own making, of which so many change in a second."""
    with loopback_address() as host:
        address = f"{host}:{_PORT}"
        command = [sys.executable, "-P", str(_FEED), address, str(jobs), str(nodes), str(changes)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as served:
            try:
                assert served.stdout is not None  # noqa: S101 - it is a pipe
                served.stdout.readline()
                yield address, Process(served.pid, "")
            finally:
                served.terminate()


def _feed(options: Options) -> contextlib.AbstractContextManager[tuple[str, Process]]:
    return feeding(jobs=2_000, nodes=500) if options.quick else feeding(jobs=20_000, nodes=5_000)


def viewers(options: Options) -> Iterator[Figure]:
    """Open many pages, and see what that costs."""
    count = 100 if options.quick else 1_000
    with _feed(options) as (address, process):
        cost, events = loop.run(_watch(address, process, count))
        note(f"{events / count / _MEASURED:.1f} events a second for each of {count} viewers")
        yield figure(f"Processor time with {count:,} viewers at 50 changes/s", "≤ 15 % of a core", cost * 100)
        yield figure(f"Memory at most, with {count:,} viewers", "≤ 150 MB", process.most_memory / 1e6)


async def _watch(address: str, process: Process, count: int) -> tuple[float, int]:
    host, _, port = address.rpartition(":")
    events = 0
    gate = asyncio.Semaphore(_AT_ONCE)

    async def view() -> None:
        nonlocal events
        async with gate:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET /api/stream HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            opened.release()
        try:
            while data := await reader.read(1 << 16):
                events += data.count(b"event: delta")
        finally:
            writer.close()

    opened = asyncio.Semaphore(0)
    tasks = [asyncio.ensure_future(view()) for _ in range(count)]
    for _ in range(count):
        await opened.acquire()
    await asyncio.sleep(5)
    events, began, used = 0, time.monotonic(), process.processor
    await asyncio.sleep(_MEASURED)
    cost = (process.processor - used) / (time.monotonic() - began)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return cost, events


def first(options: Options) -> Iterator[Figure]:
    """Open the page, and scroll."""
    with _feed(options) as (address, _), running() as browser:
        times = []
        for _ in range(_TRIES):
            with contextlib.closing(browser.new_context(viewport={"width": 1280, "height": 800})) as context:
                page = context.new_page()
                began = time.monotonic()
                page.goto(f"http://{address}/#/now")
                page.locator(".grid canvas").wait_for()
                page.wait_for_function("document.querySelector('.grid canvas').height > 200")
                times.append(time.monotonic() - began)
        note(f"first views: {', '.join(f'{it:.2f}' for it in times)} s")
        yield figure("First view with 5,000 nodes and 20,000 jobs", "≤ 1.5 s", statistics.median(times))
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"http://{address}/#/queue")
        page.get_by_role("grid").wait_for()
        yield figure("Time between two pictures while scrolling, in the median", "≤ 100 ms", _scroll(page))


def _scroll(page: Page) -> float:
    script = """async () => {
      const table = document.querySelector('.table'), gaps = [];
      let last = performance.now();
      for (let i = 0; i < 120; i++) {
        table.scrollTop += 400;
        await new Promise(requestAnimationFrame);
        const now = performance.now();
        gaps.push(now - last);
        last = now;
      }
      return gaps.sort((a, b) => a - b)[60];
    }"""
    return float(page.evaluate(script))


def visible(options: Options) -> Iterator[Figure]:
    """Change a job in a real Slurm, and wait for the browser to show it."""
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(ControlPlaneBed(controllers=False))
        bed = stack.enter_context(SlurmBed(nodes=1, accounting=False))
        host = stack.enter_context(loopback_address())
        address = f"{host}:{_PORT}"
        flags = [f"--slurm-rest-api={bed.rest_url}", f"--bind-address={address}", "--insecure-no-login"]
        flags += ["--metrics-bind-address=0", f"--health-probe-bind-address={host}:8081"]
        environment = os.environ | {"KUBECONFIG": str(plane.kubeconfig), "SLURM_JWT": bed.token("slurm")}
        log = stack.enter_context(tempfile.TemporaryFile())
        served = stack.enter_context(
            subprocess.Popen([_ISTHMUS, "web", *flags], env=environment, stdout=log, stderr=log)
        )
        stack.callback(served.terminate)
        browser = stack.enter_context(running())
        page = browser.new_page()
        eventually(lambda: urllib.request.urlopen(f"http://{address}/", timeout=5), "the page")
        page.goto(f"http://{address}/#/queue")
        delays = []
        for number in range(3 if options.quick else 10):
            name = f"seen-{number}"
            job = bed.command("sbatch", "--parsable", "--hold", f"--job-name={name}", "--wrap=true").strip()
            row = page.get_by_role("row").filter(has_text=name)
            row.filter(has_text="pending").wait_for()
            began = time.monotonic()
            bed.command("scancel", job)
            row.filter(has_text="cancelled").wait_for()
            delays.append(time.monotonic() - began)
        note(f"a change is visible after {statistics.median(delays):.2f} s in the median, scancel itself included")
        yield figure("Change in Slurm: visible in a browser within, at most", "≤ 1 s", max(delays))


def size(_options: Options) -> Iterator[Figure]:
    """Add up the files of the page."""
    total = sum(len(it.packed) for it in assets.load().values())
    yield figure("Code of the page, compressed", "≤ 80 kB", total / 1000)


if __name__ == "__main__":
    sys.exit(main({"viewers": viewers, "first": first, "visible": visible, "size": size}, about=__doc__ or ""))
