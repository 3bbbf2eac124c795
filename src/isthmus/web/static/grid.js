// The grid of nodes on a canvas: each node a cell with two layers, Slurm jobs and pods, grouped by rack or block.
import { html, OUT, useEffect, useLayoutEffect, useMemo, useRef, useState, words, number, cores } from "./lib.js";
import { N } from "./feed.js";
import { go, nodeLink } from "./parts.js";

const HEAD = 20;
const order = new Intl.Collator("en", { numeric: true }).compare;

/** Names such as n17 in the order of their numbers; a collator takes ten times as long, and there are thousands. */
const keyOf = (name) => {
  const [, head, digits, tail] = /^(.*?)(\d*)(\D*)$/.exec(name);
  return { head, number: Number(digits || 0), tail, name };
};
const before = (a, b) => (a.head !== b.head ? order(a.head, b.head) : a.number - b.number || (a.name < b.name ? -1 : 1));

const SIZES = [44, 36, 30, 22, 15, 9];
const NAMED = 30;
const ROOM = 300;

/** Where each cell is, for a width: cells as large as there is room for. */
function layout(nodes, width) {
  const groups = new Map();
  for (const row of nodes) {
    const block = row[N.block] || "";
    if (!groups.has(block)) groups.set(block, []);
    groups.get(block).push(row);
  }
  const sorted = [...groups]
    .sort(([a], [b]) => order(a, b))
    .map(([block, rows]) => {
      const keys = new Map(rows.map((row) => [row, keyOf(row[0])]));
      return [block, rows.sort((a, b) => before(keys.get(a), keys.get(b)))];
    });
  for (const size of SIZES) {
    const plan = placed(sorted, width, size);
    if (plan.height <= ROOM || size === SIZES.at(-1)) return plan;
  }
}

/** Groups one below another, small groups side by side; large cells have names below them. */
function placed(groups, width, size) {
  const gap = size > 12 ? 4 : 2;
  const step = size + gap;
  const down = size >= NAMED ? step + 13 : step;
  const cells = [];
  const heads = [];
  let x0 = 0;
  let y0 = 0;
  let deepest = 0;
  for (const [block, rows] of groups) {
    const fit = Math.max(1, Math.floor(width / step));
    const label = Math.ceil((block.length * 7 + 56) / step);
    const across = Math.min(fit, Math.max(label, rows.length <= fit ? rows.length : fit));
    if (x0 && x0 + across * step > width) {
      x0 = 0;
      y0 += deepest + 14;
      deepest = 0;
    }
    heads.push({ x: x0, y: y0, block, count: rows.length });
    rows.forEach((row, i) => {
      cells.push({ row, x: x0 + (i % across) * step, y: y0 + HEAD + Math.floor(i / across) * down });
    });
    deepest = Math.max(deepest, HEAD + Math.ceil(rows.length / across) * down);
    x0 += across * step + 18;
  }
  return { cells, heads, size, width, height: y0 + deepest, byName: new Map(cells.map((cell) => [cell.row[0], cell])) };
}

/** The same plan with new values, if no node came, left or moved; else null. */
function refreshed(plan, nodes, width) {
  if (!plan || plan.width !== width || plan.cells.length !== nodes.length) return null;
  for (const row of nodes) if (plan.byName.get(row[0])?.row[N.block] !== row[N.block]) return null;
  for (const row of nodes) plan.byName.get(row[0]).row = row;
  return plan;
}

function colours(element) {
  const style = getComputedStyle(element);
  const of = (name) => style.getPropertyValue(name).trim();
  return { cell: of("--cell"), edge: of("--edge"), job: of("--run"), pod: of("--pod"), bad: of("--bad"), wait: of("--wait"), dim: of("--dim"), text: of("--text"), focus: of("--focus") };
}

function hatch(context, x, y, size, colour) {
  context.save();
  context.beginPath();
  context.rect(x, y, size, size);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = Math.max(1.5, size / 9);
  context.beginPath();
  for (let d = -size; d < size; d += Math.max(4, size / 4)) {
    context.moveTo(x + d, y + size);
    context.lineTo(x + d + size, y);
  }
  context.stroke();
  context.restore();
}

/** Draw all, or of a plan that was drawn before only what changed. */
function draw(context, { cells, heads, size }, colour, at, whole) {
  if (whole) drawHeads(context, heads, colour);
  for (const cell of cells) {
    const selected = cell.row[0] === at;
    if (!whole && cell.drawn === cell.row && cell.selected === selected) continue;
    context.clearRect(cell.x - 2, cell.y - 2, size + 4, size + 4);
    drawCell(context, cell, size, colour, selected);
    cell.drawn = cell.row;
    cell.selected = selected;
  }
}

function drawHeads(context, heads, colour) {
  context.font = "500 11px system-ui, sans-serif";
  context.textBaseline = "top";
  for (const { x, y, block, count } of heads) {
    context.fillStyle = colour.text;
    context.fillText(block || "no block", x, y + 3);
    const width = context.measureText(block || "no block").width;
    context.fillStyle = colour.dim;
    context.fillText(number(count), x + width + 6, y + 3);
  }
}

/** What tells a node from its neighbours: the end of a long name. */
const shortened = (name) => (name.length <= 7 ? name : `…${name.slice(-6)}`);

function drawCell(context, { row, x, y }, size, colour, selected) {
  const state = row[N.state];
  const off = state === "powered_down" || state === "unknown";
  context.fillStyle = off ? "transparent" : colour.cell;
  context.fillRect(x, y, size, size);
  const podWidth = row[N.kube] ? Math.max(2, Math.round(size * 0.28)) : 0;
  const jobWidth = size - podWidth - (podWidth ? 1 : 0);
  if (row[N.cpus]) {
    const share = Math.min(1, row[N.cpusUsed] / row[N.cpus]);
    const tall = Math.round(share * size);
    context.fillStyle = colour.job;
    if (tall) context.fillRect(x, y + size - tall, jobWidth, Math.max(2, tall));
  }
  if (podWidth && row[N.kubeCpus]) {
    const tall = Math.round(Math.min(1, row[N.podCpus] / row[N.kubeCpus]) * size);
    context.fillStyle = colour.pod;
    if (row[N.pods]) context.fillRect(x + size - podWidth, y + size - Math.max(2, tall), podWidth, Math.max(2, tall));
  }
  if (OUT.has(state)) hatch(context, x, y, size, state === "drained" || state === "draining" ? colour.wait : colour.bad);
  else if (row[N.kubeState] === "not ready") hatch(context, x, y, size, colour.bad);
  context.strokeStyle = off ? colour.dim : colour.edge;
  context.lineWidth = 1;
  if (off) context.setLineDash([2, 2]);
  context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
  context.setLineDash([]);
  if (size >= NAMED) {
    context.font = "10px system-ui, sans-serif";
    context.textBaseline = "top";
    context.textAlign = "center";
    context.fillStyle = colour.dim;
    context.clearRect(x - 2, y + size + 2, size + 4, 11);
    context.fillText(shortened(row[0]), x + size / 2, y + size + 3, size + 2);
    context.textAlign = "left";
  }
  if (selected) {
    context.strokeStyle = colour.focus;
    context.lineWidth = 2;
    context.strokeRect(x - 0.5, y - 0.5, size + 1, size + 1);
  }
}

export const describe = (row) => {
  const parts = [words(row[N.state] === "kubernetes" ? "in Kubernetes only" : row[N.state])];
  if (row[N.cpus]) parts.push(`${row[N.cpusUsed]} of ${row[N.cpus]} CPUs used by jobs`);
  if (row[N.gpus]) parts.push(`${row[N.gpusUsed]} of ${row[N.gpus]} GPUs`);
  if (row[N.kube]) parts.push(`${row[N.pods]} pods ask for ${cores(row[N.podCpus])} of ${cores(row[N.kubeCpus])} CPUs`);
  if (row[N.kubeState] && row[N.kubeState] !== "ready") parts.push(`${row[N.kubeState]} in Kubernetes`);
  if (row[N.reason]) parts.push(row[N.reason]);
  return parts.join(" · ");
};

export function Grid({ nodes }) {
  const box = useRef(null);
  const canvas = useRef(null);
  const [width, setWidth] = useState(0);
  const [at, setAt] = useState(null);
  const [tip, setTip] = useState(null);
  const [scheme, setScheme] = useState(0);
  useLayoutEffect(() => {
    const resized = new ResizeObserver(() => setWidth(box.current?.clientWidth || 0));
    resized.observe(box.current);
    setWidth(box.current.clientWidth);
    const repaint = () => setScheme((it) => it + 1);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", repaint);
    addEventListener("themechange", repaint);
    return () => {
      resized.disconnect();
      dark.removeEventListener("change", repaint);
      removeEventListener("themechange", repaint);
    };
  }, []);
  const last = useRef(null);
  const plan = useMemo(() => (width ? (last.current = refreshed(last.current, nodes, width) || layout(nodes, width)) : null), [nodes, width]);
  const shown = useRef({});
  useEffect(() => {
    if (!plan) return;
    const whole = shown.current.plan !== plan || shown.current.scheme !== scheme;
    shown.current = { plan, scheme };
    const context = canvas.current.getContext("2d");
    if (whole) {
      const ratio = devicePixelRatio || 1;
      canvas.current.width = Math.round(width * ratio);
      canvas.current.height = Math.round(plan.height * ratio);
      context.scale(ratio, ratio);
    }
    draw(context, plan, colours(canvas.current), at, whole);
  }, [nodes, width, at, scheme]);

  const find = (event) => {
    const { left, top } = canvas.current.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    return plan?.cells.find((it) => x >= it.x && x < it.x + plan.size + 2 && y >= it.y && y < it.y + plan.size + 2);
  };
  const pointed = (event) => {
    const cell = find(event);
    setTip(cell ? { row: cell.row, x: Math.min(cell.x, width - 240), y: cell.y + plan.size + 8 } : null);
  };
  const moved = (event) => {
    if (!plan?.cells.length) return;
    if (event.key === "Enter" && at) return go(nodeLink(at));
    const from = Math.max(0, plan.cells.findIndex((it) => it.row[0] === at));
    const here = plan.cells[from];
    const nearest = (down) => {
      const rows = plan.cells.map((it, i) => ({ ...it, i })).filter((it) => (down ? it.y > here.y : it.y < here.y));
      rows.sort((a, b) => Math.abs(a.y - here.y) - Math.abs(b.y - here.y) || Math.abs(a.x - here.x) - Math.abs(b.x - here.x));
      return rows[0]?.i ?? from;
    };
    const next = { ArrowRight: () => from + (at ? 1 : 0), ArrowLeft: () => from - 1, ArrowDown: () => nearest(true), ArrowUp: () => nearest(false) }[event.key];
    if (!next) return;
    event.preventDefault();
    setAt(plan.cells[Math.max(0, Math.min(plan.cells.length - 1, next()))].row[0]);
  };
  const selected = at && plan?.cells.find((it) => it.row[0] === at)?.row;
  return html`<div class="grid" ref=${box}>
    <canvas
      ref=${canvas}
      tabindex="0"
      role="img"
      aria-label=${`Grid of ${nodes.length} nodes. Arrow keys move, Enter opens a node.`}
      style=${{ width: "100%", height: `${plan?.height || 60}px` }}
      onMouseMove=${pointed}
      onMouseLeave=${() => setTip(null)}
      onClick=${(event) => find(event) && go(nodeLink(find(event).row[0]))}
      onKeyDown=${moved}
      onBlur=${() => setAt(null)}
    ></canvas>
    <p class="sr" aria-live="polite">${selected ? `${selected[0]}: ${describe(selected)}` : ""}</p>
    ${tip && html`<div class="tip" style=${{ left: `${Math.max(0, tip.x)}px`, top: `${tip.y}px` }}><b>${tip.row[0]}</b><br />${describe(tip.row)}</div>`}
    ${selected && html`<p class="picked"><b>${selected[0]}</b> ${describe(selected)}</p>`}
  </div>`;
}

export const Legend = () => html`<ul class="legend" aria-label="Legend">
  <li><i class="key job"></i>CPUs of Slurm jobs</li>
  <li><i class="key pod"></i>CPUs asked for by pods</li>
  <li><i class="key drained"></i>drained</li>
  <li><i class="key down"></i>down</li>
  <li><i class="key off"></i>powered down</li>
</ul>`;
