// Charts and live tables of a job, each with the batch of its newest rows.

import { useMemo, useState } from "preact/hooks";
import { count, moment, NONE } from "../format";
import { Given } from "../parts/given";
import { Icon } from "../parts/icon";
import { Plot, type Series } from "../parts/plot";
import type { Result, Value } from "../types";

const MOST = 8, MOST_ROWS = 100;

/** The points of a chart: times (or numbers) ascending, and one series for each line. */
function plotted(result: Result): { x: number[]; times: boolean; series: Series[]; hidden: number } {
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
      if (!lines.has(line)) lines.set(line, new Array<number | null>(x.length).fill(null));
      const value = row[name] === null ? NaN : Number(row[name]);
      lines.get(line)![i] = Number.isFinite(value) ? value : null;
    }
  }
  const all = [...lines].map(([name, values]): Series => ({ name, values }));
  const weight = (s: Series): number => s.values.reduce((total: number, v) => total + Math.abs(v ?? 0), 0);
  const kept = [...all].sort((a, b) => weight(b) - weight(a)).slice(0, MOST).sort((a, b) => a.name.localeCompare(b.name));
  return { x, times, series: kept, hidden: all.length - kept.length };
}

/** All results of a job. Pause freezes the view; the job continues. */
export function Results({ results }: { results: Result[] }) {
  const [held, hold] = useState<Result[] | null>(null);
  if (!results.length) return null;
  const behind = held ? Math.max(0, ...results.map((result) => result.batch)) - Math.max(0, ...held.map((result) => result.batch)) : 0;
  return (
    <section class="shown" aria-labelledby="results">
      <div class="row">
        <h2 id="results">Results</h2>
        <button type="button" aria-pressed={held !== null} onClick={() => hold(held ? null : results)}>
          <Icon name={held ? "play" : "pause"} />{held ? "Continue" : "Pause"}
        </button>
        {held && <span class="quiet">paused{behind > 0 && `, ${count(behind)} batches behind`}</span>}
      </div>
      <div class="results">{(held ?? results).map((result) => <Shown key={result.output} result={result} />)}</div>
    </section>
  );
}

function Shown({ result }: { result: Result }) {
  const [wide, widen] = useState(false);
  const about = result.kind === "Chart"
    ? `${(result.y ?? []).join(", ")}${result.by ? ` by ${result.by}` : ""}`
    : result.key.length ? `latest row per ${result.key.join(", ")}` : "latest rows";
  return (
    <figure class={`card result ${wide ? "wide" : ""}`} data-output={result.output} data-batch={result.batch}>
      <figcaption>
        <h3>{result.output}</h3>
        <span class="row">
          <span class="quiet">{about} · batch {result.batch}</span>
          <button type="button" class="square" aria-pressed={wide} aria-label={`${result.output} in full width`} title="Full width" onClick={() => widen(!wide)}><Icon name={wide ? "narrow" : "wide"} /></button>
        </span>
      </figcaption>
      {result.kind === "Chart" ? <Chart result={result} height={wide ? 360 : 232} /> : <Table result={result} />}
    </figure>
  );
}

function Chart({ result, height }: { result: Result; height: number }) {
  const { x, times, series, hidden } = useMemo(() => plotted(result), [result]);
  return <Plot x={x} times={times} series={series} hidden={hidden} bars={result.shape === "bars"} height={height} label={`chart of ${result.output}`} />;
}

function cell(value: Value | undefined): preact.ComponentChildren {
  if (value === null || value === undefined) return NONE;
  if (typeof value === "number") return Number.isInteger(value) ? count(value) : String(value);
  return <Given text={typeof value === "object" ? JSON.stringify(value) : moment(String(value))} first={80} />;
}

function Table({ result }: { result: Result }) {
  const columns = Object.keys(result.rows[0] ?? {});
  if (!columns.length) return <p class="quiet">No rows yet.</p>;
  const numeric = new Set(columns.filter((c) => result.rows.every((row) => row[c] === null || typeof row[c] === "number")));
  return (
    <div class="scroll tall" tabIndex={0} role="region" aria-label={`rows of ${result.output}`}>
      <table>
        <thead><tr>{columns.map((c) => <th key={c} scope="col" class={numeric.has(c) ? "number" : ""}>{c}</th>)}</tr></thead>
        <tbody>
          {[...result.rows].reverse().slice(0, MOST_ROWS).map((row, i) => (
            <tr key={i}>{columns.map((c) => <td key={c} data-column={c} class={numeric.has(c) ? "number" : ""}>{cell(row[c])}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
