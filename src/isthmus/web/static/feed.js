// What the server knows, kept here: a snapshot, then changes. Views read `tables` and follow `changed`.
import { ask, batch, signal } from "./lib.js";

export const tables = { jobs: new Map(), pods: new Map(), nodes: new Map() };
/** Positions of columns, by table: row[J.state]. */
export const J = {};
export const P = {};
export const N = {};
const columns = { jobs: J, pods: P, nodes: N };

/** Grows with each change that is to be drawn. */
export const changed = { jobs: signal(0), pods: signal(0), nodes: signal(0) };
/** How fresh each side is, as the server says. */
export const about = signal(null);
/** loading, live, lost, or an error in words. */
export const link = signal({ state: "loading" });
export const clock = signal(Date.now() / 1000);
export const me = signal(null);
export const reasons = signal({});

let source = null;
let epoch = "";
let version = 0;
let heard = 0;
let skew = 0;
let pending = [];
let scheduled = false;
let restarting = 0;

const SILENCE = 10_000;
const MANY = 5_000;

/** The time of the server, in seconds: clocks of viewers are often wrong. */
export const now = () => Date.now() / 1000 - skew;

function take(told) {
  heard = Date.now();
  about.value = told;
  skew = Date.now() / 1000 - told.now;
  if (link.value.state !== "live") link.value = { state: "live" };
}

function fill(table, { columns: names, rows }) {
  names.forEach((name, at) => (columns[table][name] = at));
  const found = tables[table];
  found.clear();
  for (const row of rows) found.set(row[0], row);
}

/** Apply what came since the last picture, at once and before the next one. */
function apply() {
  scheduled = false;
  const touched = new Set();
  for (const delta of pending) {
    version = delta.v;
    for (const table of ["jobs", "pods", "nodes"]) {
      const change = delta[table];
      if (!change) continue;
      touched.add(table);
      for (const row of change.put) tables[table].set(row[0], row);
      for (const key of change.gone) tables[table].delete(key);
    }
  }
  pending = [];
  batch(() => touched.forEach((table) => (changed[table].value += 1)));
}

function schedule() {
  if (scheduled) return;
  scheduled = true;
  const rows = tables.jobs.size + tables.pods.size + tables.nodes.size;
  // A page in the background gets no frames, and must take what comes. Tens of thousands of rows are looked through
  // for each picture, so there a few pictures a second are enough.
  if (document.hidden || rows > MANY) setTimeout(apply, document.hidden ? 1000 : 400);
  else requestAnimationFrame(apply);
}

/** Asked for before anybody is known to be logged in: most people are, and it is most of the first second. */
let early = ask("/api/snapshot");
early.catch(() => {});

/** Do not use what was asked for before the login. */
export function forget() {
  early = null;
}

/** Read everything, and then follow. */
export async function start() {
  stop();
  const asked = early || ask("/api/snapshot");
  early = null;
  try {
    const found = await asked;
    batch(() => {
      for (const table of ["jobs", "pods", "nodes"]) fill(table, found[table]);
      ({ epoch, v: version } = found);
      for (const table of ["jobs", "pods", "nodes"]) changed[table].value += 1;
      take(found.about);
    });
    follow();
  } catch (error) {
    if (error.status === 401) {
      me.value = null;
      return;
    }
    link.value = { state: "lost", text: error.message };
    again();
  }
}

function follow() {
  source = new EventSource(`/api/stream?since=${epoch}.${version}`);
  source.addEventListener("delta", (event) => {
    pending.push(JSON.parse(event.data));
    schedule();
  });
  source.addEventListener("beat", (event) => take(JSON.parse(event.data)));
  source.addEventListener("resync", () => start());
  source.onerror = () => {
    // Begin anew rather than resume: the server may be another one, or the session over.
    link.value = { state: "lost", text: "The connection to this page's server is lost." };
    again();
  };
}

function again() {
  stop();
  restarting = setTimeout(start, 1000 + Math.random() * 2000);
}

export function stop() {
  clearTimeout(restarting);
  if (source) source.close();
  source = null;
  pending = [];
}

setInterval(() => {
  clock.value = now();
  if (source && link.value.state === "live" && Date.now() - heard > SILENCE) {
    link.value = { state: "lost", text: "The connection to this page's server is silent." };
    again();
  }
}, 1000);

let asking = false;
/** Put reasons in words that are not known yet. */
export async function learn(codes) {
  if (asking || !codes.length || codes.every((code) => code in reasons.value)) return;
  asking = true;
  try {
    const found = await ask(`/api/reasons?codes=${codes.map(encodeURIComponent).join(",")}`);
    const empty = Object.fromEntries(codes.map((code) => [code, { text: "", remedy: "", outlook: "passes" }]));
    reasons.value = { ...empty, ...reasons.value, ...found };
  } catch {
    // The codes themselves are shown.
  } finally {
    asking = false;
  }
}

/** The code of a reason: Slurm writes more behind it at times. */
export const codeOf = (reason) => (reason || "None").split(",")[0];

/** A reason in words, once they are known. */
export const inWords = (reason) => reasons.value[codeOf(reason)]?.text || reason;
