// The last batches, each a bar whose parts are the phases it went through.

import { useState } from "preact/hooks";
import { clock, count, seconds } from "./format";
import type { Batch } from "./types";

export const PHASES = ["plan", "intent", "run", "sinks", "rest"] as const;

export function parts(batch: Batch): [string, number][] {
  const known = PHASES.filter((p) => p in batch.phases).map((p): [string, number] => [p, batch.phases[p] ?? 0]);
  const rest = batch.seconds - known.reduce((total, [, s]) => total + s, 0);
  return rest > 0 ? [...known, ["rest", rest]] : known;
}

export function Timeline({ batches }: { batches: Batch[] }) {
  const [chosen, choose] = useState<number | null>(null);
  if (!batches.length) return <p class="quiet">No batch yet.</p>;
  const height = 120, bar = 7, most = Math.max(...batches.map((b) => b.seconds));
  const shown = batches.find((b) => b.batch === chosen) ?? batches[batches.length - 1]!;
  return (
    <>
      <div class="scroll end">
        <svg class="timeline" width={batches.length * bar} height={height} viewBox={`0 0 ${batches.length * bar} ${height}`} role="img" aria-label={`the last ${batches.length} batches, the longest ${seconds(most)}`}>
          {batches.map((batch, i) => {
            let y = height;
            return (
              <g key={batch.batch} onPointerEnter={() => choose(batch.batch)} class={batch.batch === shown.batch ? "chosen" : ""}>
                <rect class="hit" x={i * bar} y={0} width={bar} height={height} />
                {parts(batch).map(([phase, s]) => {
                  const h = (s / most) * (height - 4);
                  y -= h;
                  return <rect key={phase} class={`phase-${phase}`} x={i * bar + 1} y={y} width={bar - 2} height={h} />;
                })}
              </g>
            );
          })}
        </svg>
      </div>
      <p class="legend">
        {PHASES.map((phase) => <span key={phase}><i class={`swatch phase-${phase}`} />{phase === "rest" ? "commit and the rest" : phase}</span>)}
      </p>
      <p class="quiet" data-fact="batch">
        batch {shown.batch} · {clock(shown.at)} · {shown.lane} · {count(shown.rows)} rows · {seconds(shown.seconds)}
        {" ("}{parts(shown).map(([phase, s]) => `${phase} ${seconds(s)}`).join(", ")}{")"}
      </p>
    </>
  );
}
