// History: how much ran and waited over the last hours and days.
import { html, moment, number, useEffect, useRef, useState } from "../lib.js";
import { Empty, Failed, Loading, useAsked } from "../parts.js";

const LEVELS = ["Last hour", "Last day", "Last fortnight"];
const CHARTS = [
  { title: "Jobs", series: [["running", "running", "--run"], ["waiting", "waiting", "--wait"]] },
  { title: "Pods placed by Slurm", series: [["podsRunning", "running", "--pod"], ["podsWaiting", "waiting", "--wait"]] },
  { title: "Nodes", series: [["nodesBusy", "busy", "--run"], ["nodesIdle", "idle", "--good"], ["nodesOut", "out", "--bad"]] },
  { title: "CPUs", series: [["cpusUsed", "in use", "--run"], ["cpus", "in all", "--dim"]] },
  { title: "GPUs", series: [["gpusUsed", "in use", "--run"], ["gpus", "in all", "--dim"]], optional: true },
];

/** As high as two rows of charts may be on this screen. */
const heightOf = () => Math.max(150, Math.min(260, (innerHeight - 290) / 2));

function Chart({ chart, data, at, setAt }) {
  const box = useRef(null);
  const plot = useRef(null);
  const columns = [data.columns[0], ...chart.series.map(([name]) => data.columns[data.series.indexOf(name) + 1])];
  useEffect(() => {
    const style = getComputedStyle(box.current);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--edge"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    plot.current = new uPlot(
      {
        width: box.current.clientWidth,
        height: heightOf(),
        legend: { show: false },
        cursor: { y: false, points: { size: 5 } },
        scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
        axes: [{ ...axis, values: (_, times) => times.map((at) => moment(at).replace(/:00$/, "")), space: 90, size: 26 }, { ...axis, size: 48 }],
        padding: [8, 12, 0, 0],
        series: [{}, ...chart.series.map(([, label, name]) => ({ label, stroke: colour(name), width: 2, spanGaps: false, points: { show: columns[0].length < 3 } }))],
        hooks: { setCursor: [(it) => it.cursor.idx !== null && it.cursor.idx !== undefined && setAt(it.cursor.idx)] },
      },
      columns,
      box.current,
    );
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: box.current.clientWidth, height: heightOf() }));
    resized.observe(box.current);
    return () => {
      resized.disconnect();
      plot.current.destroy();
    };
  }, [data.seconds]);
  useEffect(() => plot.current?.setData(columns), [data]);
  const index = at ?? columns[0].length - 1;
  return html`<section class="card" aria-label=${chart.title}>
    <header><h2>${chart.title}</h2>
      <ul class="legend">${chart.series.map(([, label, name], i) => html`<li><i class="key" style=${{ background: `var(${name})` }}></i>${label} <b>${number(columns[i + 1][index])}</b></li>`)}</ul>
    </header>
    <div class="plot" ref=${box} role="img" aria-label=${`${chart.title} over time`}></div>
  </section>`;
}

export function History() {
  const [level, setLevel] = useState(0);
  const [at, setAt] = useState(null);
  const { value: found, error, load } = useAsked(`/api/history/${level}`, 10000);
  // The plotter comes last, so that no other view waits for it.
  const [ready, setReady] = useState(!!globalThis.uPlot);
  useEffect(() => {
    const loaded = () => setReady(true);
    if (!globalThis.uPlot) addEventListener("load", loaded);
    return () => removeEventListener("load", loaded);
  }, []);
  const value = ready ? found : undefined;
  const count = value?.columns[0].length || 0;
  const index = Math.min(at ?? count - 1, count - 1);
  const shown = CHARTS.filter((it) => !it.optional || value?.columns[value.series.indexOf(it.series[1][0]) + 1].some(Boolean));
  return html`<div class="history">
    <div class="tools">
      <div class="segments" role="group" aria-label="How far back">${LEVELS.map((label, i) => html`<button aria-pressed=${level === i} onClick=${() => (setAt(null), setLevel(i))}>${label}</button>`)}</div>
      ${count > 1 && html`<label class="slide">At <b>${moment(value.columns[0][index])}</b> <input type="range" min="0" max=${count - 1} value=${index} onInput=${(event) => setAt(+event.currentTarget.value)} /></label>`}
    </div>
    ${!value
      ? error ? html`<${Failed} error=${error} retry=${load} />` : html`<${Loading} />`
      : !count
        ? html`<${Empty} title="Nothing recorded yet">The page's server keeps a sample every ten seconds while Slurm answers.<//>`
        : html`<div class="charts">${shown.map((chart) => html`<${Chart} key=${`${chart.title}${level}`} chart=${chart} data=${value} at=${index} setAt=${setAt} />`)}</div>`}
  </div>`;
}
