// The state of each step, and the value of one key as of the last commit.

import { useState } from "preact/hooks";
import { bytes, clock, count, moment, NONE } from "../format";
import { ask, errorText, useAsked } from "../live";
import { Empty, Trouble, Wait } from "../parts/facts";
import { Given } from "../parts/given";
import type { JobDetail, Value } from "../types";

interface StateOfStep { step: string; kind: string; rows: number; bytes: number; runs: number; floor: string | null; watermark: string | null }
interface States { job: string; batch: number; at: string | null; steps: StateOfStep[] }
interface OfKey { step: string; key: Record<string, string>; batch: number; at: string | null; rows: Record<string, Value>[] }

const EVERY = 3;

export function StateView({ job }: { job: JobDetail }) {
  const path = `/api/jobs/${encodeURIComponent(job.job)}/state`;
  const { answer, error } = useAsked<States>(path, EVERY);
  if (answer === null) return error ? <Trouble text={error} /> : <Wait />;
  if (!answer.steps.length) return <Empty title="This job has no state"><p>None of its operators is stateful.</p></Empty>;
  return (
    <>
      {error && <Trouble text={error} />}
      <section class="card">
        <div class="titled"><h2>State by step</h2><span class="quiet">after batch {answer.batch}{answer.at && `, ${clock(answer.at)}`}</span></div>
        <div class="scroll" tabIndex={0} role="region" aria-label="state per step"><table>
          <thead><tr><th scope="col">step</th><th scope="col">kind</th><th scope="col" class="number">rows</th><th scope="col" class="number">size</th><th scope="col" class="number">files</th><th scope="col">watermark</th></tr></thead>
          <tbody>{answer.steps.map((s) => <tr key={s.step}><th scope="row">{s.step}</th><td>{s.kind}</td><td class="number">{count(s.rows)}</td><td class="number">{bytes(s.bytes)}</td><td class="number">{count(s.runs)}</td><td>{s.watermark ? clock(s.watermark) : NONE}</td></tr>)}</tbody>
        </table></div>
      </section>
      <Lookup path={path} steps={answer.steps.map((s) => s.step)} />
    </>
  );
}

function Lookup({ path, steps }: { path: string; steps: string[] }) {
  const [step, choose] = useState(steps[0]!);
  const [key, write] = useState("");
  const [found, show] = useState<OfKey | null>(null);
  const [refused, say] = useState<string | null>(null);
  const [looking, wait] = useState(false);
  const look = async (event: Event) => {
    event.preventDefault();
    const keys = key.split(/\s*;\s*/).filter(Boolean).map((one) => `key=${encodeURIComponent(one)}`).join("&");
    wait(true);
    try {
      show(await ask<OfKey>(`${path}/${encodeURIComponent(step)}?${keys}`));
      say(null);
    } catch (error) {
      show(null);
      say(errorText(error));
    }
    wait(false);
  };
  return (
    <section class="card">
      <h2>Look up a key</h2>
      <form class="form" onSubmit={look}>
        <label class="field">step<select value={step} onChange={(event) => choose(event.currentTarget.value)}>{steps.map((one) => <option key={one}>{one}</option>)}</select></label>
        <label class="field grow">key, as VALUE or NAME=VALUE; separate several with a semicolon<input value={key} onInput={(event) => write(event.currentTarget.value)} placeholder="page=/cart" autocomplete="off" spellcheck={false} /></label>
        <button type="submit" class="first" disabled={looking}>{looking ? "searching …" : "Look up"}</button>
      </form>
      <div role="status">
        {refused && <Trouble text={refused} />}
        {found && <Found found={found} />}
      </div>
    </section>
  );
}

function Found({ found }: { found: OfKey }) {
  const columns = Object.keys(found.rows[0] ?? {});
  const of = Object.entries(found.key).map(([name, value]) => `${name}=${value}`).join(", ");
  return (
    <>
      <p class="quiet">{found.rows.length ? `${of} after batch ${found.batch}` : `No state for ${of} after batch ${found.batch}.`}</p>
      {found.rows.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="state of the key"><table>
          <thead><tr>{columns.map((c) => <th key={c} scope="col">{c}</th>)}</tr></thead>
          <tbody>{found.rows.map((row, i) => <tr key={i}>{columns.map((c) => <td key={c}>{row[c] === null ? NONE : <Given text={moment(String(row[c]))} first={120} />}</td>)}</tr>)}</tbody>
        </table></div>
      )}
    </>
  );
}
