// What a job gives: its charts and its live tables, each with the batch it is true for.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { compact, count, moment } from "./format";
import type { Result, Value } from "./types";

const MOST = 8;

export interface Series { name: string; values: (number | null)[] }

/** The points of a chart: times (or numbers) ascending, and one series for each line. */
export function plotted(result: Result): { x: number[]; times: boolean; series: Series[]; hidden: number } {
  const { x: column = "", y = [], by = null } = result;
  const place = (v: Value | undefined): number => (typeof v === "number" ? v : Date.parse(String(v)) / 1000);
  const times = result.rows.some((row) => typeof row[column] !== "number");
  const x = [...new Set(result.rows.map((row) => place(row[column])))].filter(Number.isFinite).sort((a, b) => a - b);
  const index = new Map(x.map((at, i) => [at, i]));
  const lines = new Map<string, (number | null)[]>();
  for (const row of result.rows) {
    const i = index.get(place(row[column]));
    if (i === undefined) continue;
    for (const name of y) {
      const line = by === null ? name : String(row[by]);
      if (!lines.has(line)) lines.set(line, new Array(x.length).fill(null));
      const value = row[name];
      lines.get(line)![i] = typeof value === "number" ? value : value === null ? null : Number(value);
    }
  }
  const all = [...lines].map(([name, values]): Series => ({ name, values }));
  const weight = (s: Series): number => s.values.reduce((total: number, v) => total + Math.abs(v ?? 0), 0);
  const kept = [...all].sort((a, b) => weight(b) - weight(a)).slice(0, MOST).sort((a, b) => a.name.localeCompare(b.name));
  return { x, times, series: kept, hidden: all.length - kept.length };
}

const timeOfDay = (at: number): string => new Date(at * 1000).toISOString().slice(11, 19);

function lastOf(values: (number | null)[]): number | null {
  for (let i = values.length - 1; i >= 0; i--) if (values[i] !== null) return values[i]!;
  return null;
}

/** A colour of the style sheet as a canvas understands it, in the theme of the moment. */
function paint(name: string): string {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const color = (i: number): string => paint(`line-${i + 1}`);

export function Chart({ result }: { result: Result }) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const { x, times, series, hidden } = plotted(result);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const shape = `${dark}|${result.shape}|${times}|${series.map((s) => s.name).join("|")}`;
  useEffect(() => {
    const div = holder.current!;
    const ink = paint("quiet"), grid = paint("grid");
    const axis: uPlot.Axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const made = new uPlot({
      width: div.clientWidth || 300, height: 220, legend: { show: false }, padding: [8, 8, 0, 0],
      cursor: { points: { size: 6 }, drag: { x: false, y: false } }, tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "UTC"),
      scales: { x: { time: times }, y: { range: (_u, _lo, hi) => [0, hi > 0 ? hi * 1.08 : 1] } },
      axes: [times ? { ...axis, size: 28, space: 76, values: (_u, ticks) => ticks.map(timeOfDay) } : { ...axis, size: 28 }, { ...axis, size: 46, values: (_u, ticks) => ticks.map(compact) }],
      series: [{}, ...series.map((s, i): uPlot.Series => ({
        label: s.name, stroke: color(i), width: 2, spanGaps: true, points: { show: x.length < 2 },
        ...(result.shape === "bars" ? { paths: uPlot.paths.bars!({ size: [0.7, 40] }), fill: color(i) } : {}),
      }))],
    }, [x, ...series.map((s) => s.values)] as uPlot.AlignedData, div);
    plot.current = made;
    const sized = new ResizeObserver(() => made.setSize({ width: div.clientWidth, height: 220 }));
    sized.observe(div);
    return () => { sized.disconnect(); made.destroy(); plot.current = null; };
  }, [shape]);
  useEffect(() => plot.current?.setData([x, ...series.map((s) => s.values)] as uPlot.AlignedData), [result]);
  return (
    <figure class="card result" data-output={result.output} data-batch={result.batch}>
      <figcaption><strong>{result.output}</strong><span class="quiet">{(result.y ?? []).join(", ")}{result.by ? ` by ${result.by}` : ""} · batch {result.batch}</span></figcaption>
      <div ref={holder} class="plot" role="img" aria-label={`chart of ${result.output}`} />
      <ul class="keys">
        {series.map((s, i) => (
          <li key={s.name} data-series={s.name}><i class={`swatch line-${i + 1}`} />{s.name} <b>{lastOf(s.values) === null ? "–" : compact(lastOf(s.values)!)}</b></li>
        ))}
        {hidden > 0 && <li class="quiet">and {hidden} more</li>}
      </ul>
    </figure>
  );
}

const cell = (v: Value | undefined): string =>
  v === null || v === undefined ? "–" : typeof v === "number" ? (Number.isInteger(v) ? count(v) : String(v)) : typeof v === "object" ? JSON.stringify(v) : moment(String(v));

export function Table({ result }: { result: Result }) {
  const columns = Object.keys(result.rows[0] ?? {});
  const numeric = new Set(columns.filter((c) => result.rows.every((row) => row[c] === null || typeof row[c] === "number")));
  return (
    <figure class="card result" data-output={result.output} data-batch={result.batch}>
      <figcaption><strong>{result.output}</strong><span class="quiet">{result.key.length ? `newest of each ${result.key.join(", ")}` : "newest rows"} · batch {result.batch}</span></figcaption>
      <div class="scroll rows">
        <table>
          <thead><tr>{columns.map((c) => <th key={c} class={numeric.has(c) ? "number" : ""}>{c}</th>)}</tr></thead>
          <tbody>
            {[...result.rows].reverse().slice(0, 100).map((row, i) => (
              <tr key={i}>{columns.map((c) => <td key={c} data-column={c} class={numeric.has(c) ? "number" : ""}>{cell(row[c])}</td>)}</tr>
            ))}
          </tbody>
        </table>
        {!result.rows.length && <p class="quiet">No row yet.</p>}
      </div>
    </figure>
  );
}
