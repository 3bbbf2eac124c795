// Now: the machines, what waits and for what, and what is wrong.
import { html, number, OUT, sentence, useEffect, useMemo, words } from "../lib.js";
import { about, changed, codeOf, inWords, J, learn, N, P, reasons, tables } from "../feed.js";
import { Bar, Empty, jobLink, nodeLink, podLink, Since, useSide } from "../parts.js";
import { Grid, Legend } from "../grid.js";

function Figure({ label, value, of, tone, children }) {
  return html`<div class="figure">
    <dt>${label}</dt>
    <dd><b>${value}</b>${of !== undefined && html`<span class="dim"> of ${of}</span>`}</dd>
    ${of !== undefined ? html`<dd><${Bar} used=${children[0]} total=${children[1]} tone=${tone} label=${`${label}: ${value} of ${of}`} /></dd>` : html`<dd class="dim">${children}</dd>`}
  </div>`;
}

function totals(jobs, nodes, pods) {
  const sum = { running: 0, waiting: 0, cpus: 0, cpusUsed: 0, gpus: 0, gpusUsed: 0, out: 0, idle: 0, slurm: 0, podsRun: 0, podsWait: 0 };
  for (const row of jobs.values()) {
    if (row[J.phase] === "running") sum.running += 1;
    else if (row[J.phase] === "waiting") sum.waiting += row[J.tasks];
  }
  for (const row of nodes.values()) {
    if (!row[N.cpus] && row[N.state] === "kubernetes") continue;
    sum.slurm += 1;
    sum.gpus += row[N.gpus];
    sum.gpusUsed += row[N.gpusUsed];
    sum.cpus += row[N.cpus];
    sum.cpusUsed += row[N.cpusUsed];
    if (OUT.has(row[N.state])) sum.out += 1;
    if (row[N.state] === "idle") sum.idle += 1;
  }
  for (const row of pods.values()) {
    if (!row[P.slurm]) continue;
    if (row[P.phase] === "running") sum.podsRun += 1;
    else if (row[P.phase] === "waiting") sum.podsWait += 1;
  }
  return sum;
}

/** What waits, by the code of Slurm's reason, the largest first. */
function byReason(jobs) {
  const found = new Map();
  for (const row of jobs.values()) {
    if (row[J.phase] !== "waiting") continue;
    const code = codeOf(row[J.reason]);
    const entry = found.get(code) || { code, count: 0, oldest: Infinity, outlook: row[J.outlook], example: row };
    entry.count += row[J.tasks];
    if (row[J.submit] < entry.oldest) [entry.oldest, entry.example] = [row[J.submit], row];
    found.set(code, entry);
  }
  return [...found.values()].sort((a, b) => b.count - a.count);
}

function Waiting({ jobs }) {
  const groups = byReason(jobs);
  useEffect(() => {
    learn(groups.map((it) => it.code));
  }, [groups.map((it) => it.code).join()]);
  const most = Math.max(1, ...groups.map((it) => it.count));
  if (!groups.length) return html`<${Empty} title="Nothing waits">Every job in Slurm runs or is over.<//>`;
  return html`<ul class="waits">
    ${groups.slice(0, 8).map(
      (it) => html`<li key=${it.code}>
        <a href=${`#/queue?phase=waiting&text=${encodeURIComponent(it.code)}`}>
          <span class="count">${number(it.count)}</span>
          <span class="what">${sentence(reasons.value[it.code]?.text || words(it.code))}</span>
          <${Bar} used=${it.count} total=${most} tone=${it.outlook === "passes" ? "wait" : "bad"} label=${`${it.count} jobs`} />
          <span class="dim"><code>${it.code}</code> · oldest for <${Since} at=${it.oldest} /></span>
        </a>
      </li>`,
    )}
  </ul>`;
}

/** What a person should look at, the worst first. */
function problems(jobs, nodes, pods) {
  const found = [];
  for (const row of nodes.values()) {
    const out = OUT.has(row[N.state]);
    if (!out && row[N.kubeState] !== "not ready" && !["OutOfService", "Repairing", "Draining", "Waiting"].includes(row[N.health])) continue;
    const bad = row[N.state] === "down" || row[N.state] === "not_responding" || row[N.kubeState] === "not ready";
    const what = out ? words(row[N.state]) : row[N.kubeState] === "not ready" ? "not ready in Kubernetes" : `health: ${words(row[N.health])}`;
    found.push({ rank: bad ? 0 : 2, href: nodeLink(row[0]), name: row[0], tone: bad ? "bad" : "wait", what, why: row[N.reason], at: row[N.reasonAt], by: row[N.reasonBy] });
  }
  for (const row of jobs.values()) {
    if (row[J.phase] === "waiting" && row[J.outlook] === "stuck")
      found.push({ rank: 1, href: jobLink(row[0]), name: `job ${row[J.label]}`, tone: "bad", what: "will not start by itself", why: inWords(row[J.reason]), at: row[J.submit], by: row[J.user] });
  }
  for (const row of pods.values()) {
    if (row[P.phase] === "failed" || /BackOff|ErrImage|Error$/.test(row[P.state]))
      found.push({ rank: 3, href: podLink(row[0]), name: row[0], tone: "bad", what: row[P.state], why: row[P.reason], at: row[P.created], by: "" });
  }
  return found.sort((a, b) => a.rank - b.rank || b.at - a.at);
}

function Problems({ found }) {
  if (!found.length) return html`<${Empty} title="No problems">All nodes are in use or ready, and no job is stuck.<//>`;
  return html`<ul class="problems">
    ${found.slice(0, 12).map(
      (it) => html`<li key=${it.href}>
        <a href=${it.href}><b>${it.name}</b> <span class=${`tone ${it.tone}`}>${it.what}</span></a>
        ${it.why && html`<p>${it.why}</p>`}
        <p class="dim">${it.by && html`${it.by} · `}<${Since} at=${it.at} />${it.at ? " ago" : ""}</p>
      </li>`,
    )}
    ${found.length > 12 && html`<li class="dim">and ${number(found.length - 12)} more</li>`}
  </ul>`;
}

export function Now() {
  const { jobs, nodes, pods } = tables;
  const versions = [changed.jobs.value, changed.nodes.value, changed.pods.value];
  const sum = useMemo(() => totals(jobs, nodes, pods), versions);
  const list = useMemo(() => [...nodes.values()], [changed.nodes.value]);
  const wrong = useMemo(() => problems(jobs, nodes, pods), versions);
  const instead = useSide("slurm");
  const noNodes = !list.length && (instead || html`<${Empty} title="No nodes">Slurm and Kubernetes have no nodes that you may see.<//>`);
  return html`<div class="now">
    <dl class="figures">
      ${instead
        ? html`<div class="figure wide"><dt>Slurm</dt><dd><b>not read yet</b></dd><dd class="dim">${about.value?.slurm.trouble || "reading"}</dd></div>`
        : html`
            <${Figure} label="Jobs running" value=${number(sum.running)}>${sum.podsRun ? `${number(sum.podsRun)} pods placed by Slurm` : "no pods placed by Slurm"}<//>
            <${Figure} label="Jobs waiting" value=${number(sum.waiting)}>${sum.podsWait ? `${number(sum.podsWait)} pods wait` : "no pods wait"}<//>
            <${Figure} label="CPUs in use" value=${number(sum.cpusUsed)} of=${number(sum.cpus)} tone="run">${[sum.cpusUsed, sum.cpus]}<//>
            ${sum.gpus > 0 && html`<${Figure} label="GPUs in use" value=${number(sum.gpusUsed)} of=${number(sum.gpus)} tone="run">${[sum.gpusUsed, sum.gpus]}<//>`}
            <${Figure} label="Nodes in service" value=${number(sum.slurm - sum.out)} of=${number(sum.slurm)} tone="good">${[sum.slurm - sum.out, sum.slurm]}<//>
          `}
    </dl>
    <section class="card nodes" aria-labelledby="h-nodes">
      <header><h2 id="h-nodes">Nodes</h2><${Legend} /></header>
      ${noNodes || html`<${Grid} nodes=${list} />`}
    </section>
    <section class="card" aria-labelledby="h-waits">
      <header><h2 id="h-waits">What waits, and why</h2><a href="#/queue?phase=waiting">Queue</a></header>
      ${instead || html`<${Waiting} jobs=${jobs} />`}
    </section>
    <section class="card" aria-labelledby="h-problems">
      <header><h2 id="h-problems">Problems</h2>${wrong.length > 0 && html`<span class="badge">${number(wrong.length)}</span>`}</header>
      ${instead && !wrong.length ? instead : html`<${Problems} found=${wrong} />`}
    </section>
  </div>`;
}
