// The last batches as bars, divided by phase.

import { useState } from "preact/hooks";
import { clock, count, seconds } from "../format";
import type { Batch } from "../types";

const PHASES = ["plan", "intent", "run", "sinks", "rest"] as const;
const WORDS: Record<string, string> = { rest: "commit and other" };
const BAR = 8, HEIGHT = 132, FEWEST = 40;

function parts(batch: Batch): [string, number][] {
  const known = PHASES.filter((phase) => phase in batch.phases).map((phase): [string, number] => [phase, batch.phases[phase] ?? 0]);
  const rest = batch.seconds - known.reduce((total, [, s]) => total + s, 0);
  return rest > 0 ? [...known, ["rest", rest]] : known;
}

const inWords = (batch: Batch): string => `batch ${batch.batch} · ${clock(batch.at)} · ${batch.lane} · ${batch.where} · ${count(batch.rows)} rows · ${seconds(batch.seconds)}`;

export function Timeline({ batches }: { batches: Batch[] }) {
  const [chosen, choose] = useState<number | null>(null);
  if (!batches.length) return <p class="quiet">No batch yet.</p>;
  const most = Math.max(...batches.map((batch) => batch.seconds));
  const place = batches.findIndex((batch) => batch.batch === chosen);
  const shown = batches[place] ?? batches.at(-1)!;
  const moved = (event: KeyboardEvent) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const next = Math.min(batches.length - 1, Math.max(0, (place < 0 ? batches.length - 1 : place) + by));
    choose(next === batches.length - 1 ? null : batches[next]!.batch);
  };
  const width = Math.max(FEWEST, batches.length) * BAR, first = width - batches.length * BAR;
  return (
    <>
      <div class="timeline" tabIndex={0} role="slider" aria-label="batches, by arrow keys" aria-valuemin={batches[0]!.batch} aria-valuemax={batches.at(-1)!.batch} aria-valuenow={shown.batch} aria-valuetext={inWords(shown)} onKeyDown={moved} onPointerLeave={() => choose(null)}>
        <span class="scale">{seconds(most)}</span>
        <svg viewBox={`0 0 ${width} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
          {[0.02, 0.5, 1].map((at) => <line key={at} x1="0" x2={width} y1={HEIGHT * at} y2={HEIGHT * at} />)}
          {batches.map((batch, i) => <Bar key={batch.batch} batch={batch} x={first + i * BAR} most={most} chosen={batch === shown} choose={choose} />)}
        </svg>
      </div>
      <ul class="legend">{PHASES.map((phase) => <li key={phase}><i class={`swatch phase-${phase}`} />{WORDS[phase] ?? phase}</li>)}</ul>
      <p class="quiet" data-fact="batch">{inWords(shown)} ({parts(shown).map(([phase, s]) => `${WORDS[phase] ?? phase} ${seconds(s)}`).join(", ")})</p>
    </>
  );
}

function Bar({ batch, x, most, chosen, choose }: { batch: Batch; x: number; most: number; chosen: boolean; choose: (batch: number) => void }) {
  let y = HEIGHT;
  return (
    <g onPointerEnter={() => choose(batch.batch)} class={chosen ? "chosen" : ""}>
      <rect class="hit" x={x} y={0} width={BAR} height={HEIGHT} />
      {parts(batch).map(([phase, s]) => {
        const h = (s / most) * (HEIGHT - 4);
        y -= h;
        return <rect key={phase} class={`phase-${phase}`} x={x + 1} y={y} width={BAR - 2} height={h} />;
      })}
    </g>
  );
}
