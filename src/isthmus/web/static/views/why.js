// Why: one job or pod, gate by gate; and the way to find it.
import { html, bytes, duration, moment, number, sentence, useEffect, useMemo, useRef, useState, words } from "../lib.js";
import { changed, clock, codeOf, inWords, J, learn, P, tables } from "../feed.js";
import { Bar, Empty, Failed, go, jobLink, Loading, podLink, Tone, useAsked, useSide } from "../parts.js";
import { Actions } from "../actions.js";

const SIGNS = { passed: "✓", waiting: "…", refused: "✕", unknown: "?", ahead: "·" };
const MEANING = { passed: "passed", waiting: "waits here", refused: "refused", unknown: "not known", ahead: "not its turn yet" };

/** Commands in a remedy stand out, so that they can be copied. */
const Remedy = ({ text }) => html`<p class="remedy"><span aria-hidden="true">→ </span>${sentence(text)}</p>`;

function Gates({ gates }) {
  return html`<ol class="gates">
    ${gates.map(
      (gate) => html`<li key=${gate.name} class=${gate.mark}>
        <span class="sign" aria-hidden="true">${SIGNS[gate.mark]}</span>
        <div>
          <h3>${gate.name}<span class="sr"> ${MEANING[gate.mark]}</span></h3>
          ${gate.text && html`<p>${gate.text}</p>`} ${gate.remedy && gate.remedy !== "wait" && gate.mark !== "passed" && html`<${Remedy} text=${gate.remedy} />`}
        </div>
      </li>`,
    )}
  </ol>`;
}

function Answer({ why }) {
  const closed = why.gates.find((gate) => gate.mark === "waiting" || gate.mark === "refused") || why.gates.find((gate) => gate.mark === "unknown");
  const name = why.kind === "pod" ? "pod" : "job";
  if (!closed) {
    const last = [...why.gates].reverse().find((gate) => gate.mark === "passed");
    return html`<p class="answer">${last?.name === "ended" ? sentence(last.text) : last?.name === "running" ? `It has been running ${last.text}` : `This ${name} waits for nothing: ${last?.name || "it runs"}${last?.text ? `, ${last.text}` : ""}`}.</p>`;
  }
  if (closed.name === "ended") return html`<p class="answer">${sentence(closed.text)}.</p>`;
  const head = { refused: "It does not start by itself", waiting: "It waits", unknown: "Why it waits is not known" }[closed.mark];
  const text = closed.text || closed.name;
  const because = closed.mark === "waiting" && text.startsWith("waits ");
  return html`<p class=${`answer ${closed.mark}`}><b>${head}${because ? "" : ":"}</b> ${because ? text.slice("waits ".length) : text}.</p>`;
}

function Start({ estimate }) {
  if (!estimate.at && !estimate.text) return null;
  return html`<section class="card start" aria-labelledby="h-start">
    <h2 id="h-start">Expected start</h2>
    ${estimate.at
      ? html`<p class="big">${estimate.at > clock.value ? `in ${duration(estimate.at - clock.value)}` : "any moment"} <span class="dim">${moment(estimate.at)}</span></p>
          <p><span class=${`confidence ${estimate.confidence}`}>${estimate.confidence} confidence</span> ${sentence(estimate.text)}.</p>`
      : html`<p>Not known: ${estimate.text}.</p>`}
  </section>`;
}

function Timeline({ steps }) {
  if (!steps.length) return null;
  const span = Math.max(1, clock.value - steps[0][0]);
  return html`<section class="card" aria-labelledby="h-steps">
    <h2 id="h-steps">What happened</h2>
    <ol class="steps">
      ${steps.map(([at, state, why], i) => {
        const until = steps[i + 1]?.[0] ?? clock.value;
        return html`<li>
          <time>${moment(at)}</time><span><b>${words(state)}</b> ${why}</span>
          <span class="dim right">${i < steps.length - 1 || !/completed|failed|cancelled/.test(state) ? duration(until - at) : ""}</span>
          <i class="span" style=${{ width: `${(100 * Math.max(0, until - at)) / span}%` }}></i>
        </li>`;
      })}
    </ol>
  </section>`;
}

const Facts = ({ facts }) => html`<dl class="facts">
  ${Object.entries(facts).map(([name, text]) => html`<dt>${sentence(name)}</dt><dd>${text}</dd>`)}
</dl>`;

/** What a pod, or the script of a job, writes. */
function Log({ path, containers }) {
  const [text, setText] = useState(null);
  const [open, setOpen] = useState(false);
  const [container, setContainer] = useState("");
  const view = useRef(null);
  useEffect(() => {
    if (!open) return;
    const ended = new AbortController();
    setText("");
    (async () => {
      try {
        const query = container ? `?container=${encodeURIComponent(container)}` : "";
        const answer = await fetch(`/api/log/${path}${query}`, { signal: ended.signal });
        if (!answer.ok) return setText((await answer.json()).error);
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let piece = await reader.read(); !piece.done; piece = await reader.read()) setText((was) => (was + piece.value).slice(-200_000));
      } catch (error) {
        if (error.name !== "AbortError") setText((was) => `${was}\n(the connection ended)`);
      }
    })();
    return () => ended.abort();
  }, [open, path, container]);
  useEffect(() => {
    if (view.current) view.current.scrollTop = view.current.scrollHeight;
  }, [text]);
  return html`<section class="card wide" aria-labelledby="h-log">
    <header>
      <h2 id="h-log">Log</h2>
      ${open && containers.length > 1 && html`<select aria-label="Container" onChange=${(event) => setContainer(event.currentTarget.value)}>${containers.map((it) => html`<option>${it}</option>`)}</select>`}
      <button onClick=${() => setOpen(!open)}>${open ? "Close" : "Follow"}</button>
    </header>
    ${open && html`<pre class="log" tabindex="0" aria-label="Log" ref=${view}>${text || "nothing written yet"}</pre>`}
  </section>`;
}

const actionsFor = (row) => {
  if (row[J.phase] === "waiting") return row[J.outlook] === "held" ? ["release", "cancel"] : ["hold", "cancel"];
  return row[J.phase] === "running" || row[J.phase] === "suspended" ? ["requeue", "cancel"] : [];
};

/** What was used of what was had; a job that runs tells its time alone. */
function Used({ label, used, had, show }) {
  if (used === null || used === undefined || !had) return null;
  const percent = Math.round((100 * used) / had);
  return html`<dt>${label}</dt><dd>${show(used)} of ${show(had)}, ${percent} % <${Bar} used=${used} total=${had} tone=${percent < 25 ? "wait" : "run"} label=${`${label}: ${percent} %`} /></dd>`;
}

function Asked({ row, used }) {
  if (!row) return null;
  const limit = row[J.limit];
  const ran = row[J.phase] === "running" ? clock.value - row[J.start] : row[J.end] && row[J.start] ? row[J.end] - row[J.start] : 0;
  return html`<section class="card" aria-labelledby="h-asked">
    <h2 id="h-asked">Requested and used</h2>
    <dl class="facts">
      <dt>CPUs</dt><dd>${number(row[J.cpus])} on ${number(row[J.nodes])} ${row[J.nodes] === 1 ? "node" : "nodes"}</dd>
      <dt>Memory</dt><dd>${bytes(row[J.memory])}</dd>
      ${row[J.gpus] > 0 && html`<dt>GPUs</dt><dd>${number(row[J.gpus])}</dd>`}
      <dt>Time</dt>
      <dd>${ran ? `${duration(ran)} of ` : ""}${limit < 0 ? "no limit" : limit ? duration(limit) : "–"}${ran > 0 && limit > 0 ? html` <${Bar} used=${ran} total=${limit} label="time used" />` : ""}</dd>
      ${used && html`<${Used} label="CPU time" used=${used.cpuSeconds} had=${used.cpuSecondsHad} show=${duration} /><${Used} label="Peak memory" used=${used.maxMemory} had=${row[J.memory]} show=${bytes} />`}
      <dt>Priority</dt><dd>${number(row[J.priority])}</dd>
      <dt>Account</dt><dd>${row[J.account] || "–"}</dd>
    </dl>
  </section>`;
}

function Explained({ kind, path }) {
  const { value: why, error, load } = useAsked(`/api/why/${kind}/${path}`, 3000);
  changed.jobs.value; // what is told above may be newer than what was asked
  if (!why) return error ? html`<${Failed} error=${error} retry=${load} />` : html`<${Loading} />`;
  const job = why.job ? tables.jobs.get(why.job) || (why.kind === "job" ? why.row : null) : null;
  const containers = (why.facts.containers || "").split(", ");
  const phase = why.row[why.columns.indexOf("phase")];
  const state = why.row[why.columns.indexOf("state")];
  const pod = why.kind === "pod" ? why.name : why.pods.length === 1 ? why.pods[0] : "";
  const log = pod ? `pod/${pod.split("/").map(encodeURIComponent).join("/")}` : why.log && !why.past ? `job/${why.job}` : "";
  return html`<article class="why">
    <header class="title">
      <div>
        <p class="dim">${why.kind === "pod" ? "Pod" : "Slurm job"}${why.past ? " · Slurm has forgotten it; this is what was known last" : ""}</p>
        <h1>${why.name} <${Tone} phase=${phase} text=${state} /></h1>
        <p class="dim">${why.kind === "job" ? html`${why.row[J.name]} · ${why.row[J.user]}` : html`${why.facts.workload || "a pod by itself"}${why.job ? html` · <a href=${jobLink(why.job)}>Slurm job ${why.job}</a>` : ""}`}</p>
      </div>
      ${why.job > 0 && !why.past && job && html`<${Actions} actions=${actionsFor(job)} target=${why.job} name=${`job ${why.job}`} />`}
    </header>
    ${error && html`<p class="stale" role="alert">${error.message}</p>`}
    <${Answer} why=${why} />
    <div class="columns">
      <section class="card" aria-labelledby="h-gates"><h2 id="h-gates">Gates</h2><${Gates} gates=${why.gates} /></section>
      <div class="stack">
        <${Start} estimate=${why.estimate} />
        ${why.blockers.length > 0 &&
        html`<section class="card" aria-labelledby="h-blockers"><h2 id="h-blockers">Blocked by</h2>
          <ul class="plain">${why.blockers.map((it) => html`<li>${it.job_id ? html`<a href=${jobLink(it.job_id)}>${sentence(it.text)}</a>` : sentence(it.text)}</li>`)}</ul></section>`}
        ${why.helps.length > 0 &&
        html`<section class="card helps" aria-labelledby="h-helps"><h2 id="h-helps">What would help</h2><ul class="plain">${why.helps.map((it) => html`<li>${it}</li>`)}</ul></section>`}
        <${Timeline} steps=${why.steps} />
        <${Asked} row=${job} used=${why.used} />
        <section class="card" aria-labelledby="h-facts"><h2 id="h-facts">Details</h2><${Facts} facts=${why.facts} /></section>
        ${why.pods.length > 0 &&
        html`<section class="card" aria-labelledby="h-pods"><h2 id="h-pods">${why.kind === "pod" ? "Other pods of its group" : "Pods"}</h2>
          <ul class="chips">${why.pods.slice(0, 40).map((key) => html`<li><a href=${podLink(key)}>${key}</a></li>`)}</ul></section>`}
      </div>
      ${log && html`<${Log} path=${log} containers=${containers} />`}
    </div>
  </article>`;
}

/** Find a job or a pod by a part of its name. */
function Finder() {
  const [text, setText] = useState("");
  const versions = [changed.jobs.value, changed.pods.value];
  const instead = useSide("slurm");
  const found = useMemo(() => {
    const word = text.trim().toLowerCase();
    const match = (...texts) => !word || texts.some((it) => String(it).toLowerCase().includes(word));
    const waiting = (phase) => (phase === "waiting" ? 0 : 1);
    const jobs = [...tables.jobs.values()]
      .filter((row) => match(row[J.label], row[J.name], row[J.user], row[J.workload]))
      .map((row) => ({ href: jobLink(row[0]), rank: waiting(row[J.phase]), name: `job ${row[J.label]}`, more: `${row[J.name]} · ${row[J.user]}`, phase: row[J.phase], why: row[J.phase] === "waiting" ? row[J.reason] || "None" : "", code: row[J.phase] === "waiting" ? codeOf(row[J.reason]) : "", at: row[J.submit] }));
    const pods = [...tables.pods.values()]
      .filter((row) => (row[P.slurm] || word) && match(row[0], row[P.workload]))
      .map((row) => ({ href: podLink(row[0]), rank: waiting(row[P.phase]), name: row[0], more: row[P.workload], phase: row[P.phase], why: row[P.phase] === "waiting" ? row[P.reason] : "", at: row[P.created] }));
    return [...jobs, ...pods].sort((a, b) => a.rank - b.rank || a.at - b.at).slice(0, 30);
  }, [text, ...versions]);
  const codes = [...new Set(found.map((it) => it.code).filter(Boolean))];
  useEffect(() => {
    learn(codes);
  }, [codes.join()]);
  return html`<div class="finder">
    <h1>Why does it wait?</h1>
    <input type="search" autofocus aria-label="Job or pod" placeholder="A job's id or name, a pod, a user" value=${text} onInput=${(event) => setText(event.currentTarget.value)} onKeyDown=${(event) => event.key === "Enter" && found[0] && go(found[0].href.slice(1))} />
    ${instead ||
    (found.length
      ? html`<ul class="found">${found.map((it) => html`<li key=${it.href}><a href=${it.href}><b>${it.name}</b> <span class="dim">${it.more}</span> <${Tone} phase=${it.phase} /> <span class="what">${it.code ? sentence(inWords(it.why)) : it.why}</span></a></li>`)}</ul>`
      : html`<${Empty} title=${text ? "Nothing matches" : "Nothing waits"}>${text ? "Past jobs are found by their id for as long as they are remembered." : "Type the id of a job, or the name of a pod."} ${/^\d+$/.test(text.trim()) && html`<a href=${jobLink(text.trim())}>Look for job ${text.trim()}</a>`}<//>`)}
  </div>`;
}

export function Why({ path }) {
  const [kind, ...rest] = path;
  if (kind === "job" || kind === "pod") return html`<${Explained} kind=${kind} path=${rest.join("/")} key=${path.join("/")} />`;
  return html`<${Finder} />`;
}
