// The job's log, newest line last; it follows until the reader scrolls up or pauses.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { askText, useAsked } from "../live";
import { Trouble, Wait } from "../parts/facts";
import { Given } from "../parts/given";
import { Icon } from "../parts/icon";
import type { JobDetail, Value } from "../types";

const EVERY = 2, LAST = 400;
const LEVELS = ["everything", "warning", "error"] as const;
type Level = (typeof LEVELS)[number];

const SAME_IN_ALL_LINES = new Set(["pipeline", "process", "run_id"]);

interface Line { key: string; ts: string; level: string; event: string; facts: [string, Value][] }

function parsed(text: string): Line[] {
  const seen = new Map<string, number>();
  const keyed = (ts: string): string => {
    seen.set(ts, (seen.get(ts) ?? 0) + 1);
    return `${ts} ${seen.get(ts)}`;
  };
  return text.split("\n").filter(Boolean).map((line) => {
    try {
      const { ts, level, event, ...facts } = JSON.parse(line) as Record<string, Value>;
      return { key: keyed(String(ts)), ts: String(ts ?? ""), level: String(level ?? ""), event: String(event ?? ""), facts: Object.entries(facts).filter(([name]) => !SAME_IN_ALL_LINES.has(name)) };
    } catch {
      return { key: keyed(""), ts: "", level: "", event: line, facts: [] };
    }
  });
}

const asLines = async (path: string, signal: AbortSignal): Promise<Line[]> => parsed(await askText(path, signal));

export function LogView({ job }: { job: JobDetail }) {
  const [level, choose] = useState<Level>("everything");
  const [held, hold] = useState<Line[] | null>(null);
  const { answer, error } = useAsked<Line[]>(`/api/jobs/${encodeURIComponent(job.job)}/log?last=${LAST}`, EVERY, asLines);
  const list = useRef<HTMLOListElement>(null);
  const atEnd = useRef(true);
  const lines = (held ?? answer)?.filter((line) => level === "everything" || line.level === "error" || line.level === level);
  useLayoutEffect(() => {
    if (atEnd.current && list.current) list.current.scrollTop = list.current.scrollHeight;
  });
  if (!lines) return error ? <Trouble text={error} /> : <Wait />;
  return (
    <section class="card" aria-labelledby="log">
      <div class="titled">
        <h2 id="log">Log <span class="quiet">the last {LAST} lines</span></h2>
        <div class="row">
          <label class="row quiet">level <select value={level} onChange={(event) => choose(event.currentTarget.value as Level)}>{LEVELS.map((one) => <option key={one} value={one}>{one === "everything" ? one : `${one} and above`}</option>)}</select></label>
          <button type="button" aria-pressed={held !== null} onClick={() => hold(held ? null : answer)}><Icon name={held ? "play" : "pause"} />{held ? "Continue" : "Pause"}</button>
        </div>
      </div>
      {error && <Trouble text={error} />}
      <ol class="log" ref={list} tabIndex={0} aria-label="log lines" onScroll={({ currentTarget: box }) => { atEnd.current = box.scrollHeight - box.scrollTop - box.clientHeight < 24; }}>
        {lines.map((line) => (
          <li key={line.key} class={line.level}>
            <time dateTime={line.ts}>{line.ts.slice(11, 23)}</time><span class="level">{line.level}</span>
            <span class="line"><Given text={line.event} /> <span class="facts"><Given text={line.facts.map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`).join(" ")} first={600} /></span></span>
          </li>
        ))}
        {!lines.length && <li><span class="quiet">No lines at this level.</span></li>}
      </ol>
    </section>
  );
}
