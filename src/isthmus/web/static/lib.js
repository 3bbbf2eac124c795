// What every view uses: markup, hooks, signals, requests, and values in words.
import { h, render } from "preact";
import htm from "htm";

export { render };
export { useEffect, useLayoutEffect, useMemo, useRef, useState, useCallback } from "preact/hooks";
export { signal, computed, effect, batch, useSignal } from "@preact/signals";

export const html = htm.bind(h);

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** Ask the server; what it refuses becomes an error with its sentence. */
export async function ask(path, { body, csrf } = {}) {
  const options = { credentials: "same-origin", headers: {} };
  if (body !== undefined) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
    if (csrf) options.headers["X-Isthmus-Csrf"] = csrf;
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Refused(0, "The server of this page does not answer.");
  }
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, found.error || `The server answered ${answer.status}.`);
  return found;
}

export const number = (value) => (value ?? 0).toLocaleString("en");

/** Seconds as 45 s, 12 min, 3 h 20 min, 5 d. */
export function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) {
    const minutes = Math.floor((s % 3600) / 60);
    return `${Math.floor(s / 3600)} h${minutes ? ` ${minutes} min` : ""}`;
  }
  const hours = Math.floor((s % 86400) / 3600);
  return `${Math.floor(s / 86400)} d${hours ? ` ${hours} h` : ""}`;
}

/** A moment: the time alone if it is today. */
export function moment(seconds) {
  if (!seconds) return "–";
  const date = new Date(seconds * 1000);
  const time = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  if (date.toDateString() === new Date().toDateString()) return time;
  return `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time.slice(0, 5)}`;
}

export function bytes(value) {
  if (!value) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : Math.round(value * 10) / 10} ${units[unit]}`;
}

export const cores = (value) => (Number.isInteger(value) ? number(value) : value.toFixed(value < 10 ? 2 : 1).replace(/\.?0+$/, ""));

/** A phase as one of five tones. */
export const TONES = {
  waiting: "wait",
  running: "run",
  suspended: "wait",
  ending: "quiet",
  completed: "good",
  cancelled: "quiet",
  failed: "bad",
  unknown: "quiet",
};

export const OUT = new Set(["draining", "drained", "failing", "not_responding", "down"]);
/** Slurm's NOT_RESPONDING in words; names such as CrashLoopBackOff stay what people search for. */
export const words = (text) => (/[a-z][A-Z]/.test(text) ? String(text) : String(text).replaceAll("_", " ").toLowerCase());
export const sentence = (text) => (text ? text[0].toUpperCase() + text.slice(1) : "");

/** Whether a host list such as n[1-3,7],m1 names a node. */
export function names(hosts, node) {
  if (!hosts) return false;
  if (!hosts.includes("[")) return hosts.split(",").includes(node);
  for (const [, head, ranges] of hosts.matchAll(/([^,[\]]+)(?:\[([^\]]*)\])?/g)) {
    if (!ranges) {
      if (head === node) return true;
      continue;
    }
    if (!node.startsWith(head)) continue;
    const rest = node.slice(head.length);
    if (!/^\d+$/.test(rest)) continue;
    for (const range of ranges.split(",")) {
      const [from, to = from] = range.split("-");
      if (+rest >= +from && +rest <= +to) return true;
    }
  }
  return false;
}
