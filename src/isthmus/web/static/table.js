// A table of any length: only the rows in sight exist. Arrow keys move, Enter opens.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";

const HEIGHT = 30;
const SPARE = 8;

export function Table({ label, columns, rows, open, sort, onSort, keyOf, empty }) {
  const box = useRef(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [at, setAt] = useState(-1);
  useLayoutEffect(() => {
    const resized = new ResizeObserver(() => setHeight(box.current?.clientHeight || 600));
    resized.observe(box.current);
    return () => resized.disconnect();
  }, []);
  useEffect(() => {
    if (at >= rows.length) setAt(rows.length - 1);
  }, [rows.length]);

  const first = Math.max(0, Math.floor(top / HEIGHT) - SPARE);
  const last = Math.min(rows.length, Math.ceil((top + height) / HEIGHT) + SPARE);
  const grid = { gridTemplateColumns: columns.map((it) => it.width).join(" ") };

  const moved = (event) => {
    const page = Math.max(1, Math.floor(height / HEIGHT) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length };
    if (event.key === "Enter" && event.target.closest("button, a")) return; // a heading that sorts, or a link
    if (event.key === "Enter" && rows[at]) return open(rows[at]);
    if (!(event.key in steps)) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(rows.length - 1, at + steps[event.key]));
    setAt(next);
    const y = next * HEIGHT;
    if (y < box.current.scrollTop) box.current.scrollTop = y;
    if (y + 2 * HEIGHT > box.current.scrollTop + height) box.current.scrollTop = y + 2 * HEIGHT - height;
  };

  return html`<div
    class="table"
    role="grid"
    aria-label=${label}
    aria-rowcount=${rows.length + 1}
    aria-activedescendant=${rows[at] ? `row-${keyOf(rows[at])}` : undefined}
    tabindex="0"
    style=${rows.length ? { maxHeight: `${(rows.length + 1) * HEIGHT + 4}px`, minHeight: "0" } : undefined}
    ref=${box}
    onKeyDown=${moved}
    onScroll=${(event) => setTop(event.currentTarget.scrollTop)}
  >
    <div class="row head" role="row" aria-rowindex="1" style=${grid}>
      ${columns.map(
        (it) => html`<div role="columnheader" class=${it.right ? "right" : ""} aria-sort=${sort.by === it.by ? (sort.down ? "descending" : "ascending") : undefined}>
          ${it.by === undefined
            ? it.title
            : html`<button onClick=${() => onSort({ by: it.by, down: sort.by === it.by ? !sort.down : !!it.down })}>
                ${it.title}${sort.by === it.by ? (sort.down ? " ↓" : " ↑") : ""}
              </button>`}
        </div>`,
      )}
    </div>
    ${rows.length === 0
      ? html`<div role="row"><div role="gridcell">${empty}</div></div>`
      : html`<div class="rows" role="rowgroup" style=${{ height: `${rows.length * HEIGHT}px` }}>
          ${rows.slice(first, last).map((row, i) => {
            const index = first + i;
            const key = keyOf(row);
            return html`<div
              key=${key}
              id=${`row-${key}`}
              role="row"
              aria-rowindex=${index + 2}
              aria-selected=${index === at}
              class=${`row${index === at ? " at" : ""}`}
              style=${{ ...grid, transform: `translateY(${index * HEIGHT}px)` }}
              onClick=${() => (setAt(index), open(row))}
            >
              ${columns.map((it) => html`<div role="gridcell" class=${it.right ? "right" : ""}>${it.cell(row)}</div>`)}
            </div>`;
          })}
        </div>`}
  </div>`;
}
