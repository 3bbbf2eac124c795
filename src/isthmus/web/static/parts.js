// Small parts that several views share.
import { ask, html, duration, moment, TONES, words, useEffect, useRef, useState } from "./lib.js";
import { about, clock, link } from "./feed.js";

export const go = (path) => (location.hash = path);
export const jobLink = (id) => `#/why/job/${id}`;
export const podLink = (key) => `#/why/pod/${key.split("/").map(encodeURIComponent).join("/")}`;
export const nodeLink = (name) => `#/node/${encodeURIComponent(name)}`;

export const Tone = ({ phase, text }) => html`<span class=${`tone ${TONES[phase] || "quiet"}`}>${words(text || phase)}</span>`;

/** A time that grows, as "3 min". */
export const Since = ({ at }) => html`<time title=${moment(at)}>${at ? duration(clock.value - at) : "–"}</time>`;

export const Bar = ({ used, total, tone = "run", label }) => {
  const share = total ? Math.min(1, used / total) : 0;
  return html`<span class="bar" role="img" aria-label=${label}><i class=${tone} style=${{ width: `${share * 100}%` }}></i></span>`;
};

export const Empty = ({ title, children }) => html`<div class="empty"><p class="empty-title">${title}</p>${children && html`<p>${children}</p>`}</div>`;

/** What is so instead of data: loading, not read yet, or nothing. Returns null when there is data to show. */
export function useSide(side) {
  const told = about.value;
  if (!told) return html`<${Loading} />`;
  const it = told[side];
  if (it.read) return null;
  const name = side === "slurm" ? "Slurm" : "Kubernetes";
  return it.ok
    ? html`<${Empty} title=${`Reading ${name}…`}>Nothing is shown until everything has been read once.<//>`
    : html`<${Empty} title=${`${name} has not answered yet`}>${it.trouble}<//>`;
}

export const Loading = () => html`<div class="loading" role="status"><span class="sr">Loading</span>${[...Array(6)].map(() => html`<i></i>`)}</div>`;

export function Failed({ error, retry }) {
  return html`<${Empty} title=${error.status === 404 ? "Not found" : "This could not be read"}>
    ${error.message} ${retry && html`<button onClick=${retry}>Try again</button>`}
  <//>`;
}

/** The line above all views that says that what is shown is not of now. */
export function Staleness() {
  const told = about.value;
  clock.value; // drawn anew each second
  if (link.value.state === "lost")
    return html`<div class="stale bad" role="alert"><b>Not connected.</b> ${link.value.text} What is shown is from ${moment(told?.now)}. Trying again…</div>`;
  if (!told) return null;
  const lines = [];
  for (const [side, name] of [["slurm", "Slurm"], ["kubernetes", "Kubernetes"]]) {
    const it = told[side];
    if (it.ok) continue;
    if (!it.read) {
      lines.push(html`<div class="stale" role="alert"><b>${name} has not answered yet.</b> Nothing is known of it, so none of it is shown. <span class="dim">${it.trouble}</span></div>`);
      continue;
    }
    const age = it.age ? ` for ${duration(it.age + clock.value - told.now)}` : "";
    lines.push(html`<div class="stale" role="alert"><b>${name} has not answered${age}.</b> What is shown of it is what was known last. <span class="dim">${it.trouble}</span></div>`);
  }
  return lines;
}

/** Ask for something when its address changes, and again every few seconds. */
export function useAsked(path, every = 5000) {
  const [found, set] = useState({ path: "" });
  const turn = useRef(0);
  const load = async () => {
    const mine = ++turn.current;
    try {
      const value = await ask(path);
      if (turn.current === mine) set({ path, value });
    } catch (error) {
      if (turn.current === mine) set((was) => ({ path, error, value: was.path === path && error.status !== 404 ? was.value : undefined }));
    }
  };
  useEffect(() => {
    load();
    const timer = setInterval(() => document.hidden || load(), every);
    return () => {
      turn.current += 1;
      clearInterval(timer);
    };
  }, [path]);
  return { ...(found.path === path ? found : {}), load };
}
