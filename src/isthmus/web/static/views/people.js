// People: who runs, waits, has used and is entitled to what.
import { html, duration, number, useMemo, useState } from "../lib.js";
import { Bar, Empty, Failed, go, Loading, useAsked, useSide } from "../parts.js";
import { Table } from "../table.js";

const order = new Intl.Collator("en", { numeric: true }).compare;
const share = (value) => (value === undefined || value === null ? "–" : `${(value * 100).toFixed(1)} %`);

const COLUMNS = [
  { title: "Account", by: "account", width: "minmax(6rem, 1fr)", cell: (it) => it.account || "–" },
  { title: "User", by: "user", width: "minmax(6rem, 1fr)", cell: (it) => (it.user ? html`<a href=${`#/queue?text=${encodeURIComponent(it.user)}`} tabindex="-1">${it.user}</a>` : html`<span class="dim">all</span>`) },
  { title: "Running", by: "running", down: true, right: true, width: "5.4rem", cell: (it) => number(it.running) },
  { title: "CPUs", by: "cpus", down: true, right: true, width: "5rem", cell: (it) => number(it.cpus) },
  { title: "GPUs", by: "gpus", down: true, right: true, width: "4.4rem", cell: (it) => (it.gpus ? number(it.gpus) : "–") },
  { title: "Waiting", by: "waiting", down: true, right: true, width: "5.2rem", cell: (it) => number(it.waiting) },
  { title: "Longest wait", by: "wait", down: true, right: true, width: "7rem", cell: (it) => (it.wait ? duration(it.wait) : "–") },
  { title: "Entitled", by: "share", down: true, right: true, width: "5.4rem", cell: (it) => share(it.share) },
  { title: "Used", by: "usage", down: true, right: true, width: "5.4rem", cell: (it) => share(it.usage) },
  { title: "Limits", width: "minmax(5rem, 1.2fr)", cell: (it) => html`<span title=${(it.limits || []).join(", ")}>${(it.limits || []).join(", ") || "–"}</span>` },
  { title: "Fair share", by: "fairShare", down: true, width: "8rem", cell: (it) => (it.fairShare === undefined || it.fairShare === null ? "–" : html`<${Bar} used=${it.fairShare} total=${1} label=${it.fairShare.toFixed(2)} /> ${it.fairShare.toFixed(2)}`) },
];
const NARROW = [
  { ...COLUMNS[1], width: "minmax(0, 1fr)", cell: (it) => html`${it.user || "all"} <span class="dim">${it.account}</span>` },
  { ...COLUMNS[3], width: "3.4rem" },
  { ...COLUMNS[5], width: "4.4rem" },
  { ...COLUMNS[6], title: "Waits", width: "5.6rem" },
];

export function People() {
  const { value, error, load } = useAsked("/api/people", 5000);
  const [sort, setSort] = useState({ by: "cpus", down: true });
  const instead = useSide("slurm");
  const rows = useMemo(() => {
    const found = [...(value?.people || [])];
    const of = (it) => it[sort.by] ?? -1;
    found.sort((a, b) => (typeof of(a) === "number" && typeof of(b) === "number" ? of(a) - of(b) : order(String(of(a)), String(of(b)))));
    return sort.down ? found.reverse() : found;
  }, [value, sort]);
  if (instead) return instead;
  if (!value) return error ? html`<${Failed} error=${error} retry=${load} />` : html`<${Loading} />`;
  return html`<div class="queue"><h1 class="sr">People</h1>
    <${Table} label="People" columns=${innerWidth < 720 ? NARROW : COLUMNS} rows=${rows} keyOf=${(it) => `${it.account}/${it.user}`} open=${(it) => it.user && go(`/queue?text=${encodeURIComponent(it.user)}`)} sort=${sort} onSort=${setSort} empty=${html`<${Empty} title="Nobody has jobs">And Slurm reports no shares: it may have no accounting.<//>`} />
  </div>`;
}
