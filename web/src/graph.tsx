// The logical plan as a picture: sources on the left, outputs on the right, figures on what remembers.

import { bytes, compact } from "./format";
import type { JobDetail, Plan, StepFacts } from "./types";

interface Box { id: string; title: string; lines: string[]; kind: "read" | "plain" | "state" | "out"; layer: number; from: string[]; busy: number }

const WIDTH = 208, GAP_X = 44, GAP_Y = 18, LINE = 16, INDENT = 24;
const heightOf = (box: Box): number => 34 + box.lines.length * LINE;

export function boxes(plan: Plan, facts: Record<string, StepFacts>): Box[] {
  const made = new Map<string, Box>();
  for (const step of plan.steps) {
    const known = facts[step.step];
    const kind = step.step.startsWith("read ") ? "read" : step.state ? "state" : "plain";
    const from = step.from.map((n) => `s${n}`);
    const layer = Math.max(-1, ...from.map((id) => made.get(id)?.layer ?? -1)) + 1;
    made.set(`s${step.number}`, {
      id: `s${step.number}`, title: step.step, kind, layer, from,
      lines: described(step, known), busy: known?.busy ?? 0,
    });
  }
  const last = Math.max(0, ...[...made.values()].map((box) => box.layer)) + 1;
  plan.outputs.forEach((out, index) => {
    made.set(`o${index}`, { id: `o${index}`, title: out.output, kind: "out", layer: last, from: [`s${out.from}`], lines: [out.to.replace(/\(.*$/s, "").slice(0, 34)], busy: 0 });
  });
  return [...made.values()];
}

function described(step: Plan["steps"][number], known: StepFacts | undefined): string[] {
  const lines: string[] = [];
  if (typeof step.window === "string") lines.push(step.window);
  if (known) {
    lines.push(`${compact(known.rows_per_second)} rows/s · ${compact(known.in)} in · ${compact(known.out)} out`);
    if (known.state_rows !== null) lines.push(`${compact(known.state_rows)} rows, ${bytes(known.state_bytes ?? 0)} of state`);
    if (known.late || known.dead) lines.push(`${compact(known.late)} late · ${compact(known.dead)} dead`);
  }
  return lines;
}

interface Layout { places: Map<string, { x: number; y: number; h: number }>; width: number; height: number }

/** Sources on the left, each step one column further right. */
function layered(all: Box[]): Layout {
  const places: Layout["places"] = new Map();
  const filled: number[] = [];
  for (const box of all) {
    const y = filled[box.layer] ?? 0, h = heightOf(box);
    places.set(box.id, { x: box.layer * (WIDTH + GAP_X), y, h });
    filled[box.layer] = y + h + GAP_Y;
  }
  return { places, width: filled.length * (WIDTH + GAP_X) - GAP_X, height: Math.max(0, ...filled) - GAP_Y };
}

/** One below the other, each further in than what it takes rows from: for narrow screens. */
function listed(all: Box[]): Layout {
  const places: Layout["places"] = new Map();
  let y = 0;
  for (const box of all) {
    const h = heightOf(box);
    places.set(box.id, { x: box.layer * INDENT, y, h });
    y += h + GAP_Y;
  }
  return { places, width: WIDTH + INDENT * Math.max(0, ...all.map((box) => box.layer)), height: y - GAP_Y };
}

export function Graph({ job, down }: { job: JobDetail; down: boolean }) {
  if (!job.plan) return <p class="quiet">The plan is known once the job has started.</p>;
  const all = boxes(job.plan, job.steps);
  const { places, width, height } = down ? listed(all) : layered(all);
  return (
    <div class="scroll">
      <svg class="graph" width={width + 4} height={height + 4} viewBox={`-2 -2 ${width + 4} ${height + 4}`} role="img" aria-label="the logical plan">
        {all.flatMap((box) => box.from.map((id) => {
          const a = places.get(id), b = places.get(box.id);
          if (!a || !b) return null;
          const [x1, y1, x2, y2] = down ? [a.x + 9, a.y + a.h, b.x, b.y + b.h / 2] : [a.x + WIDTH, a.y + a.h / 2, b.x, b.y + b.h / 2];
          const bend = down ? `M${x1} ${y1}V${y2}H${x2}` : `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`;
          return <path key={`${id}-${box.id}`} class={`edge ${job.state === "running" || job.state === "catching up" ? "flowing" : ""}`} d={bend} />;
        }))}
        {all.map((box) => {
          const at = places.get(box.id)!;
          return (
            <g key={box.id} class={`box ${box.kind}`} transform={`translate(${at.x} ${at.y})`}>
              <title>{box.title}</title>
              <rect width={WIDTH} height={at.h} rx="8" />
              {box.busy > 0 && <rect class="busy" x="0" y={at.h - 3} width={WIDTH * box.busy} height="3" rx="1.5" />}
              <text class="title" x="12" y="22">{box.title.length > 27 ? `${box.title.slice(0, 26)}…` : box.title}</text>
              {box.lines.map((line, i) => <text key={i} x="12" y={38 + i * LINE}>{line.length > 36 ? `${line.slice(0, 35)}…` : line}</text>)}
            </g>
          );
        })}
      </svg>
    </div>
  );
}
