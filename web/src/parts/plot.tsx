// A chart of lines or bars over time (or numbers), with a legend that shows the values under the pointer.

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { compact, NONE } from "../format";
import { useTheme } from "../theme";
import { Given } from "./given";

export interface Series { name: string; values: (number | null)[] }

interface Shown {
  x: number[]; times: boolean; series: Series[]; bars?: boolean; height?: number; label: string; hidden?: number;
  unit?: (value: number) => string;
}

const timeOfDay = (at: number): string => new Date(at * 1000).toISOString().slice(11, 19);

function lastOf(values: (number | null)[]): number | null {
  for (let i = values.length - 1; i >= 0; i--) if (values[i] !== null) return values[i]!;
  return null;
}

/** A colour of the style sheet in the current theme, in a form that a canvas accepts. */
function paint(name: string): string {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const dataOf = ({ x, series }: Shown): uPlot.AlignedData => [x, ...series.map((s) => s.values)] as uPlot.AlignedData;

function made(shown: Shown, div: HTMLDivElement, point: (index: number | null) => void): uPlot {
  const { times, series, bars, height = 220, unit = compact } = shown;
  const axis: uPlot.Axis = { stroke: paint("quiet"), grid: { stroke: paint("grid"), width: 1 }, ticks: { show: false }, font: `11px ${getComputedStyle(document.body).fontFamily}` };
  return new uPlot({
    width: div.clientWidth || 300, height, legend: { show: false }, padding: [8, 26, 0, 0],
    cursor: { points: { size: 6 }, drag: { x: false, y: false }, y: false }, tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "UTC"),
    scales: { x: { time: times }, y: { range: (_u, lo, hi) => [Math.min(0, lo ?? 0), hi > 0 ? hi * 1.08 : 1] } },
    axes: [
      times ? { ...axis, size: 28, space: 76, values: (_u, ticks) => ticks.map(timeOfDay) } : { ...axis, size: 28 },
      { ...axis, size: 52, values: (_u, ticks) => ticks.map(unit) },
    ],
    series: [{}, ...series.map((s, i): uPlot.Series => ({
      label: s.name, stroke: paint(`line-${i + 1}`), width: 2, spanGaps: true, points: { show: shown.x.length < 2 },
      ...(bars ? { paths: uPlot.paths.bars!({ size: [0.7, 40] }), fill: paint(`line-${i + 1}`) } : {}),
    }))],
    hooks: { setCursor: [(u) => point(u.cursor.idx ?? null)] },
  }, dataOf(shown), div);
}

export function Plot(shown: Shown) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [pointed, point] = useState<number | null>(null);
  const theme = useTheme();
  const { x, times, series, bars, height = 220, label, hidden = 0, unit = compact } = shown;
  const shape = [theme, bars, times, height, x.length < 2, ...series.map((s) => s.name)].join("|");
  useEffect(() => {
    const div = holder.current!;
    const drawn = made(shown, div, point);
    plot.current = drawn;
    const sized = new ResizeObserver(() => drawn.setSize({ width: div.clientWidth, height }));
    sized.observe(div);
    return () => { sized.disconnect(); drawn.destroy(); plot.current = null; };
  }, [shape]);
  useEffect(() => plot.current?.setData(dataOf(shown)), [x, series]);
  const at = pointed !== null && pointed < x.length ? pointed : null;
  const valueOf = (s: Series): number | null => (at === null ? lastOf(s.values) : s.values[at] ?? null);
  return (
    <>
      <div ref={holder} class="plot" role="img" aria-label={`${label}; its latest values are in the list below`} />
      <ul class="keys">
        {series.map((s, i) => (
          <li key={s.name} data-series={s.name}><i class={`swatch line-${i + 1}`} /><Given text={s.name} first={60} /><b>{valueOf(s) === null ? NONE : unit(valueOf(s)!)}</b></li>
        ))}
        {at !== null && times && <li>at {timeOfDay(x[at]!)}</li>}
        {hidden > 0 && <li>and {hidden} more</li>}
      </ul>
    </>
  );
}
