// The data flow: every operator with its figures, coloured by busy, waiting or idle time.

import { useEffect, useRef, useState } from "preact/hooks";
import { bytes, compact, counted, share } from "../format";
import { Meter } from "../parts/facts";
import type { Batch, Instance, JobDetail, PlanStep, StepFacts } from "../types";
import { laidOut, type Box } from "./layout";

const WIDTH = 224, LINE = 18, FRAME = 54, METER = 14;
const WINDOW = 10;

export interface Time { busy: number; waiting: number; idle: number }

interface Operator extends Box { kind: string; title: string; lines: string[]; time: Time | null }

/** Shares of the last ten seconds: busy, waiting for other operators in a batch, and idle between batches. */
export function timeOf(busy: number, batches: Batch[]): Time {
  const recent = batches.filter((batch) => Date.parse(batch.at) > Date.now() - WINDOW * 1000);
  const inBatch = Math.min(1, recent.reduce((sum, batch) => sum + batch.seconds, 0) / WINDOW);
  const own = Math.min(busy, 1);
  return { busy: own, waiting: Math.max(0, inBatch - own), idle: Math.max(0, 1 - Math.max(own, inBatch)) };
}

const mostly = ({ busy, waiting, idle }: Time): string => (busy >= waiting && busy >= idle ? "busy" : waiting >= idle ? "waiting" : "idle");

export const timeInWords = ({ busy, waiting, idle }: Time): string => `busy ${share(busy)}, waiting ${share(waiting)}, idle ${share(idle)}`;

function operators(job: JobDetail): Operator[] {
  const plan = job.plan!;
  const made = new Map<string, Operator>();
  for (const step of plan.steps) {
    const facts = job.steps[step.step], source = job.sources[step.step.slice(5)];
    const from = step.from.map((n) => `s${n}`);
    const read = step.step.startsWith("read ");
    const layer = Math.max(-1, ...from.map((id) => made.get(id)?.layer ?? -1)) + 1;
    const lines = read ? ofSource(step, job) : ofStep(step, facts);
    const busy = read ? source?.instances.reduce((sum, one) => sum + one.busy, 0) : facts?.busy;
    const time = busy === undefined ? null : timeOf(busy, job.batches_shown);
    made.set(`s${step.number}`, sized({
      id: `s${step.number}`, layer, from, lines, time,
      kind: read ? "source" : step.state ? "operator with state" : "operator", title: read ? step.step.slice(5) : step.step,
    }));
  }
  const last = Math.max(0, ...[...made.values()].map((box) => box.layer)) + 1;
  plan.outputs.forEach((out, i) => {
    made.set(`o${i}`, sized({
      id: `o${i}`, layer: last, from: [`s${out.from}`], kind: "output", title: out.output, time: null,
      lines: [out.to.split("(")[0]!.trim(), `${compact(rate(job.batches_shown, (batch) => batch.outputs[out.output] ?? 0))} rows/s`],
    }));
  });
  return [...made.values()];
}

const sized = (box: Omit<Operator, "width" | "height">): Operator =>
  ({ ...box, width: WIDTH, height: FRAME + box.lines.length * LINE + (box.time ? METER + LINE : 0) });

function rate(batches: Batch[], rows: (batch: Batch) => number): number {
  return batches.filter((batch) => Date.parse(batch.at) > Date.now() - WINDOW * 1000).reduce((sum, batch) => sum + rows(batch), 0) / WINDOW;
}

function ofSource(step: PlanStep, job: JobDetail): string[] {
  const name = step.step.slice(5), lags = job.lags.filter((lag) => lag.source === name), facts = job.sources[name];
  const lines = typeof step.source === "string" ? [step.source] : [];
  const sum = (pick: (one: Instance) => number): number => facts!.instances.reduce((total, one) => total + pick(one), 0);
  if (facts?.instances.length) lines.push(`${compact(sum((one) => one.rows_per_second))} rows/s, ${compact(sum((one) => one.in))} read`);
  if (lags.length) lines.push(`${counted(lags.length, "partition")}, ${compact(lags.reduce((total, lag) => total + lag.lag, 0))} unread`);
  return lines;
}

function ofStep(step: PlanStep, facts: StepFacts | undefined): string[] {
  const lines = typeof step.window === "string" ? [step.window] : [];
  if (!facts) return lines;
  lines.push(`${compact(facts.rows_per_second)} rows/s, ${compact(facts.in)} in, ${compact(facts.out)} out`);
  if (facts.state_rows !== null) lines.push(`${compact(facts.state_rows)} state rows, ${bytes(facts.state_bytes ?? 0)}`);
  if (facts.late || facts.dead) lines.push(`${compact(facts.late)} late, ${compact(facts.dead)} dead`);
  return lines;
}

function useWidth(): [(element: HTMLElement | null) => void, number] {
  const [room, set] = useState(0);
  const watching = useRef<ResizeObserver | null>(null);
  useEffect(() => () => watching.current?.disconnect(), []);
  const hold = useRef((element: HTMLElement | null) => {
    watching.current?.disconnect();
    if (!element) return;
    watching.current = new ResizeObserver(() => set(element.clientWidth));
    watching.current.observe(element);
  });
  return [hold.current, room];
}

export function Graph({ job }: { job: JobDetail }) {
  const [hold, room] = useWidth();
  if (!job.plan) return <p class="quiet">The plan is shown once the job has started.</p>;
  const all = operators(job);
  const { places, paths, width, height } = laidOut(all, room);
  const flowing = job.state === "running" || job.state === "degraded";
  return (
    <div class="scroll" ref={hold}>
      <div class="flow" style={{ width: `${width}px`, height: `${height}px` }}>
        <svg width={width} height={height} aria-hidden="true">{[...paths].map(([name, path]) => <path key={name} class={`edge ${flowing ? "flowing" : ""}`} d={path} />)}</svg>
        <ul aria-label="operators, from sources to outputs">
          {all.map((box) => {
            const { x, y, width: wide } = places.get(box.id)!;
            return (
              <li key={box.id} class={box.time ? mostly(box.time) : ""} style={{ left: `${x}px`, top: `${y}px`, width: `${wide}px`, height: `${box.height}px` }}>
                <span class="kind">{box.kind}</span>
                <strong title={box.title}>{box.title}</strong>
                {box.lines.map((line, i) => <span key={i} title={line}>{line}</span>)}
                {box.time && <><Meter label={timeInWords(box.time)} parts={[["busy", box.time.busy], ["waiting", box.time.waiting]]} /><span aria-hidden="true">{timeInWords(box.time)}</span></>}
              </li>
            );
          })}
        </ul>
      </div>
    </div>
  );
}

export const TimeLegend = () => (
  <ul class="legend">
    <li><i class="swatch busy" />busy: processing rows</li>
    <li><i class="swatch waiting" />waiting: other operators process the batch</li>
    <li><i class="swatch idle" />idle: no batch is running</li>
    <li>of the last {WINDOW} seconds</li>
  </ul>
);
