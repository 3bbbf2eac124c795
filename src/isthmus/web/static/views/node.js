// Node: one machine, its state over time, what was found on it, who drained it, and what runs there.
import { html, bytes, cores, moment, number, OUT, sentence, words } from "../lib.js";
import { changed, J, N, tables } from "../feed.js";
import { Bar, Failed, jobLink, Loading, podLink, Since, Tone, useAsked } from "../parts.js";
import { Actions } from "../actions.js";

const phaseOf = (state) => (state === "down" || state === "not_responding" || state === "failing" ? "failed" : OUT.has(state) ? "waiting" : state === "idle" ? "completed" : state === "kubernetes" ? "unknown" : "running");

function Use({ row }) {
  const line = (label, used, total, show, tone) => total > 0 && html`<dt>${label}</dt><dd>${used ? show(used) : 0} of ${show(total)} <${Bar} used=${used} total=${total} tone=${tone} label=${`${label}: ${used ? show(used) : 0} of ${show(total)}`} /></dd>`;
  return html`<dl class="facts">
    ${line("CPUs of jobs", row[N.cpusUsed], row[N.cpus], number, "run")} ${line("Memory of jobs", row[N.memoryUsed], row[N.cpus] ? row[N.memory] : 0, bytes, "run")}
    ${line("GPUs of jobs", row[N.gpusUsed], row[N.gpus], number, "run")} ${line("CPUs of pods", row[N.podCpus], row[N.kubeCpus], cores, "pod")}
    <dt>Partitions</dt><dd>${row[N.partitions].join(", ") || "–"}</dd>
    <dt>Block</dt><dd>${row[N.block] || "–"}</dd>
  </dl>`;
}

export function NodeView({ name }) {
  const { value: view, error, load } = useAsked(`/api/node/${encodeURIComponent(name)}`, 3000);
  changed.nodes.value;
  const row = tables.nodes.get(name);
  if (!view || !row) return error ? html`<${Failed} error=${error} retry=${load} />` : html`<${Loading} />`;
  const state = row[N.state];
  const actions = [];
  if (state !== "kubernetes") actions.push(OUT.has(state) ? "resume" : "drain");
  if (row[N.kubeState] === "cordoned") actions.push("uncordon");
  return html`<article class="why">
    <header class="title">
      <div>
        <p class="dim">Node${row[N.kube] && row[N.kube] !== name ? html` · ${row[N.kube]} in Kubernetes` : ""}</p>
        <h1>${name} <${Tone} phase=${phaseOf(state)} text=${state === "kubernetes" ? "in Kubernetes only" : state} />${row[N.kubeState] && row[N.kubeState] !== "ready" ? html` <span class="tone wait">${row[N.kubeState]}</span>` : ""}</h1>
      </div>
      <${Actions} actions=${actions} target=${name} name=${`node ${name}`} />
    </header>
    ${row[N.reason] && html`<p class=${`answer ${state === "down" || state === "not_responding" ? "refused" : OUT.has(state) ? "waiting" : ""}`}><b>${state === "draining" ? "No new jobs" : OUT.has(state) ? "Out of use" : "Reason"}:</b> ${row[N.reason]} <span class="dim">set by ${row[N.reasonBy] || "somebody"}, <${Since} at=${row[N.reasonAt]} /> ago</span></p>`}
    <div class="columns">
      <div class="stack">
        <section class="card" aria-labelledby="h-use"><h2 id="h-use">Use</h2><${Use} row=${row} /></section>
        <section class="card" aria-labelledby="h-findings"><h2 id="h-findings">Findings</h2>
          ${view.findings.length
            ? html`<p>${sentence(view.message)}</p><ul class="problems">${view.findings.map((it) => html`<li><b>${it.check}</b> <span class=${`tone ${it.active ? "bad" : "good"}`}>${it.active ? "seen" : "gone"}</span><p>${it.evidence}</p><p class="dim">by ${it.source}, ${number(it.count)} times</p></li>`)}</ul>
                <dl class="facts"><dt>Next</dt><dd>${sentence(view.nextStep)}</dd>${view.wayBack.map((it) => html`<dt>Needed</dt><dd>${it}</dd>`)}</dl>`
            : html`<p class="dim">Nothing was found on this node.</p>`}
        </section>
        <section class="card" aria-labelledby="h-facts"><h2 id="h-facts">Details</h2><dl class="facts">${Object.entries(view.facts).map(([key, text]) => html`<dt>${key}</dt><dd>${text}</dd>`)}</dl></section>
      </div>
      <div class="stack">
        <section class="card" aria-labelledby="h-here"><h2 id="h-here">On it now</h2>
          ${!view.jobs.length && !view.pods.length && html`<p class="dim">Neither jobs nor pods.</p>`}
          <ul class="found">
            ${view.jobs.map((id) => {
              const job = tables.jobs.get(id);
              return job && html`<li><a href=${jobLink(id)}><b>job ${job[J.label]}</b> <span class="dim">${job[J.name]} · ${job[J.user]}</span> <${Tone} phase=${job[J.phase]} /></a></li>`;
            })}
            ${view.pods.map((key) => html`<li><a href=${podLink(key)}><b>${key}</b> <span class="kind pod">pod</span></a></li>`)}
          </ul>
        </section>
        <section class="card" aria-labelledby="h-states"><h2 id="h-states">States</h2>
          <ol class="steps">${[...view.steps].reverse().map(([at, word, why]) => html`<li><time>${moment(at)}</time><span><b>${words(word)}</b> ${why}</span></li>`)}</ol>
          <p class="dim">Since this page's server began to watch.</p>
        </section>
      </div>
    </div>
  </article>`;
}
