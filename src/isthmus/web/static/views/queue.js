// Queue: jobs, pods and workloads in one table.
import { html, bytes, cores, duration, moment, number, sentence, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib.js";
import { changed, clock, codeOf, inWords, J, learn, P, tables } from "../feed.js";
import { Empty, go, jobLink, podLink, Tone, useSide } from "../parts.js";
import { Table } from "../table.js";

const KINDS = [["all", "All"], ["job", "Slurm jobs"], ["pod", "Pods"], ["workload", "Workloads"]];
const PHASES = [["", "Any state"], ["waiting", "Waiting"], ["running", "Running"], ["over", "Over"]];
const OVER = new Set(["completed", "cancelled", "failed"]);
const order = new Intl.Collator("en", { numeric: true }).compare;

const ofJob = (row) => ({
  kind: "job",
  key: `j${row[0]}`,
  id: row[J.label],
  sort: row[0],
  name: row[J.name],
  who: row[J.user],
  where: row[J.partition],
  state: row[J.state],
  phase: row[J.phase],
  why: row[J.phase] === "waiting" ? row[J.reason] || "not looked at yet" : row[J.hosts],
  cpus: row[J.cpus],
  memory: row[J.memory],
  gpus: row[J.gpus],
  at: row[J.submit],
  start: row[J.start],
  end: row[J.end],
  priority: row[J.priority],
  href: jobLink(row[0]),
  twin: row[J.workload],
  text: `${row[J.label]} ${row[J.name]} ${row[J.user]} ${row[J.account]} ${row[J.partition]} ${row[J.qos]} ${row[J.state]} ${row[J.reason]} ${row[J.hosts]} ${row[J.workload]}`.toLowerCase(),
});

const ofPod = (row) => ({
  kind: "pod",
  key: `p${row[0]}`,
  id: row[P.job] ? String(row[P.job]) : "",
  sort: row[P.job] || 0,
  name: row[P.name],
  who: row[P.namespace],
  where: row[P.slurm] ? "by Slurm" : "by Kubernetes",
  state: row[P.state],
  phase: row[P.phase],
  why: row[P.phase] === "waiting" ? row[P.reason] || "not looked at yet" : row[P.reason] || row[P.node],
  cpus: row[P.cpus],
  memory: row[P.memory],
  gpus: row[P.gpus],
  at: row[P.created],
  start: row[P.started],
  end: 0,
  priority: 0,
  href: podLink(row[0]),
  twin: row[P.workload],
  text: `${row[0]} ${row[P.state]} ${row[P.reason]} ${row[P.node]} ${row[P.workload]} ${row[P.job] || ""}`.toLowerCase(),
});

/** Rows that did not change are made once. */
function kept(make) {
  const made = new WeakMap();
  return (row) => {
    let found = made.get(row);
    if (!found) made.set(row, (found = make(row)));
    return found;
  };
}
const jobRow = kept(ofJob);
const podRow = kept(ofPod);

/** Pods of one workload as one line. */
function workloads(pods) {
  const found = new Map();
  for (const pod of pods) {
    if (!pod.twin) continue;
    const group = found.get(pod.twin) || { pods: [], twin: pod.twin };
    group.pods.push(pod);
    found.set(pod.twin, group);
  }
  return [...found.values()].map(({ pods: members, twin }) => {
    const [kind, name] = twin.split(" ");
    const count = (phase) => members.filter((it) => it.phase === phase).length;
    const waiting = members.find((it) => it.phase === "waiting");
    const phase = waiting ? "waiting" : count("running") ? "running" : count("failed") ? "failed" : members[0].phase;
    const total = (field) => members.reduce((sum, it) => sum + it[field], 0);
    return {
      kind: "workload",
      key: `w${twin}`,
      id: members.find((it) => it.id)?.id || "",
      sort: 0,
      name: name?.split("/")[1] || twin,
      who: name?.split("/")[0] || "",
      where: kind,
      state: `${count("running")} of ${members.length} run`,
      phase,
      why: waiting?.why || "",
      cpus: total("cpus"),
      memory: total("memory"),
      gpus: total("gpus"),
      at: Math.min(...members.map((it) => it.at)),
      start: 0,
      end: 0,
      priority: 0,
      href: (waiting || members[0]).href,
      twin,
      text: members.map((it) => it.text).join(" ").slice(0, 4000),
    };
  });
}

function time(row) {
  if (row.phase === "waiting") return row.start > clock.value ? `in ${duration(row.start - clock.value)}` : `waits ${duration(clock.value - row.at)}`;
  if (row.phase === "running") return row.start ? duration(clock.value - row.start) : "";
  if (row.end && row.start) return duration(row.end - row.start);
  return "";
}

/** Slurm's reasons in words; what is written of pods is in words already. */
const told = (row) => (row.kind === "job" && row.phase === "waiting" ? sentence(inWords(row.why)) : row.why);

const COLUMNS = [
  { title: "What", by: "kind", width: "5.2rem", cell: (row) => html`<span class=${`kind ${row.kind}`}>${row.kind}</span>` },
  { title: "Job", by: "sort", down: true, width: "minmax(4.5rem, 6.5rem)", cell: (row) => html`<code>${row.id || "–"}</code>` },
  { title: "Name", by: "name", width: "minmax(8rem, 2fr)", cell: (row) => html`<a href=${row.href} tabindex="-1">${row.name || "(no name)"}</a>` },
  { title: "Owner", by: "who", width: "minmax(5rem, 1fr)", cell: (row) => row.who },
  { title: "Where", by: "where", width: "minmax(5rem, 1fr)", cell: (row) => row.where },
  { title: "State", by: "state", width: "7.5rem", cell: (row) => html`<${Tone} phase=${row.phase} text=${row.state} />` },
  { title: "Why or where", by: "why", width: "minmax(8rem, 2.4fr)", cell: (row) => html`<span title=${row.why}>${told(row)}</span>` },
  { title: "CPUs", by: "cpus", down: true, right: true, width: "4rem", cell: (row) => cores(row.cpus) },
  { title: "GPUs", by: "gpus", down: true, right: true, width: "3.6rem", cell: (row) => (row.gpus ? number(row.gpus) : "–") },
  { title: "Memory", by: "memory", down: true, right: true, width: "5.4rem", cell: (row) => bytes(row.memory) },
  { title: "Time", right: true, width: "7.2rem", cell: (row) => html`<span title=${`submitted ${moment(row.at)}`}>${time(row)}</span>` },
];
const NARROW = [
  { ...COLUMNS[0], width: "2.9rem" },
  { ...COLUMNS[2], width: "minmax(0, 1.2fr)" },
  { ...COLUMNS[5], width: "5.4rem" },
  { ...COLUMNS[6], width: "minmax(0, 1fr)" },
];

export function Queue({ query }) {
  const [kind, setKind] = useState(query.get("kind") || "all");
  const [phase, setPhase] = useState(query.get("phase") || "");
  const [text, setText] = useState(query.get("text") || "");
  const [all, setAll] = useState(false);
  const [sort, setSort] = useState({ by: "at", down: true });
  const [narrow, setNarrow] = useState(innerWidth < 720);
  const search = useRef(null);
  useEffect(() => {
    const resized = () => setNarrow(innerWidth < 720);
    addEventListener("resize", resized);
    return () => removeEventListener("resize", resized);
  }, []);
  useLayoutEffect(() => {
    if (query.has("search")) search.current.focus();
  }, []);

  const jobs = useMemo(() => [...tables.jobs.values()].map(jobRow), [changed.jobs.value]);
  const codes = useMemo(() => [...new Set(jobs.filter((row) => row.phase === "waiting").map((row) => codeOf(row.why)))], [jobs]);
  useEffect(() => {
    learn(codes);
  }, [codes.join()]);
  const pods = useMemo(() => [...tables.pods.values()].filter((row) => all || row[P.slurm]).map(podRow), [changed.pods.value, all]);
  const groups = useMemo(() => workloads(pods), [pods]);
  const rows = useMemo(() => {
    const from = { all: [...jobs, ...pods], job: jobs, pod: pods, workload: groups }[kind];
    const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
    const found = from.filter(
      (row) => (!phase || (phase === "over" ? OVER.has(row.phase) : row.phase === phase)) && wanted.every((word) => row.text.includes(word)),
    );
    const { by, down } = sort;
    found.sort((a, b) => (typeof a[by] === "number" ? a[by] - b[by] : order(a[by], b[by])) || (a.key < b.key ? -1 : 1));
    return down ? found.reverse() : found;
  }, [jobs, pods, groups, kind, phase, text, sort]);

  const instead = useSide("slurm");
  const empty = instead && !rows.length ? instead : html`<${Empty} title=${text || phase ? "Nothing matches" : "The queue is empty"}>
    ${text || phase ? html`<button onClick=${() => (setText(""), setPhase(""))}>Show everything</button>` : "Slurm has no jobs, and no pods are placed by it."}
  <//>`;
  return html`<div class="queue">
    <div class="tools" role="search">
      <input ref=${search} type="search" aria-label="Search" placeholder="Search name, user, node, reason…  ( / )" value=${text} onInput=${(event) => setText(event.currentTarget.value)} />
      <div class="segments" role="group" aria-label="What is shown">
        ${KINDS.map(([value, label]) => html`<button aria-pressed=${kind === value} onClick=${() => setKind(value)}>${label}</button>`)}
      </div>
      <select aria-label="State" value=${phase} onChange=${(event) => setPhase(event.currentTarget.value)}>
        ${PHASES.map(([value, label]) => html`<option value=${value}>${label}</option>`)}
      </select>
      <label class="check"><input type="checkbox" checked=${all} onChange=${(event) => setAll(event.currentTarget.checked)} /> Pods that Kubernetes places</label>
      <span class="dim count" role="status">${number(rows.length)} ${rows.length === 1 ? "row" : "rows"}</span>
    </div>
    <${Table} label="Queue" columns=${narrow ? NARROW : COLUMNS} rows=${rows} keyOf=${(row) => row.key} open=${(row) => go(row.href.slice(1))} sort=${sort} onSort=${setSort} empty=${empty} />
  </div>`;
}
