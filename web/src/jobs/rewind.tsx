// The rewind dialog, which shows what will happen before anything does.

import { useState } from "preact/hooks";
import { clock, count, counted } from "../format";
import { send, errorText } from "../live";
import { Modal } from "../parts/dialog";
import { Trouble } from "../parts/facts";
import type { Commit, JobDetail, PlanOutput, RewindDone, RewindWish } from "../types";

/** `to` is the commit to go back to (null: the start), `after` are all later ones (null: not known). */
export interface Target { to: Commit | null; after: Commit[] | null; suffix: string }

type Mode = "into" | "again";

/** What happens to an output that receives the same rows again, by the kind of its sink. */
const AGAIN: [RegExp, string][] = [
  [/^topic/i, "receives the rows again, each marked by the header millstream.again"],
  [/^(postgres|sqlite)/i, "has its rows replaced by key; without a key this is refused"],
  [/^files/i, "is restored to its earlier content; later rows are removed"],
  [/^delta/i, "is restored to its earlier version; refused if another writer has committed since"],
  [/^(chart|livetable)/i, "loses the rows of later batches"],
  [/^function/i, "is called again, with new ids"],
  [/^(webhook|email|alert)/i, "is sent again, unless its id shows that it was sent before"],
];

const fate = (out: PlanOutput): string => AGAIN.find(([kind]) => kind.test(out.to))?.[1] ?? "receives the rows again";

const nextSuffix = (suffix: string): string => {
  const number = /(\d+)$/.exec(suffix);
  return number ? suffix.slice(0, number.index) + String(Number(number[1]) + 1) : `${suffix}-2`;
};

export function Rewind({ job, target, close }: { job: JobDetail; target: Target; close: (done: boolean) => void }) {
  const [mode, choose] = useState<Mode>("into");
  const [suffix, write] = useState(nextSuffix(target.suffix));
  const [typed, type] = useState("");
  const [phase, become] = useState<"asking" | "working" | "done">("asking");
  const [messages, setMessages] = useState<string[]>([]);
  const [refused, refuse] = useState<string | null>(null);
  const to = target.to ? String(target.to.batch) : "start";
  const ready = mode === "into" ? /^[A-Za-z0-9_-]{1,50}$/.test(suffix) : typed === job.job;
  const go = async (event: Event) => {
    event.preventDefault();
    if (!ready || phase !== "asking") return;
    become("working");
    refuse(null);
    const wish: RewindWish = mode === "into" ? { to, into: suffix } : { to, again: true };
    try {
      setMessages((await send<RewindDone>("POST", `/api/jobs/${encodeURIComponent(job.job)}/rewind`, wish)).messages);
      become("done");
    } catch (error) {
      refuse(errorText(error));
      become("asking");
    }
  };
  const where = target.to ? `batch ${target.to.batch}` : "the start";
  if (phase === "done") {
    return (
      <Modal title={`${job.job} is back at ${where}`} close={() => close(true)}>
        <ul class="will" role="status">{messages.map((line, i) => <li key={i}>{line}</li>)}</ul>
        <div class="row"><button type="button" class="first" onClick={() => close(true)}>Close</button></div>
      </Modal>
    );
  }
  return (
    <Modal title={`Rewind ${job.job} to ${where}`} close={() => phase === "asking" && close(false)}>
      <form onSubmit={go}>
        <fieldset class="plainly" disabled={phase === "working"}>
          <legend class="hidden-words">Which outputs</legend>
          <label class="choice"><input type="radio" name="way" checked={mode === "into"} onChange={() => choose("into")} /><span>New outputs <span class="mono">--into</span></span><span class="quiet">The existing outputs stay unchanged; the job writes to new ones from now on.</span></label>
          {mode === "into" && <label class="field">added to the name of every output<input value={suffix} onInput={(event) => write(event.currentTarget.value)} spellcheck={false} autocomplete="off" /></label>}
          <label class="choice"><input type="radio" name="way" checked={mode === "again"} onChange={() => choose("again")} /><span>The same outputs <span class="mono">--again</span></span><span class="quiet">They go back, or take the rows once more.</span></label>
        </fieldset>
        <div><h3>What will happen</h3><Will job={job} target={target} mode={mode} suffix={suffix} /></div>
        {mode === "again" && <label class="field">This changes outputs that others may read. Type the job's name, {job.job}, to confirm<input value={typed} onInput={(event) => type(event.currentTarget.value)} spellcheck={false} autocomplete="off" /></label>}
        <div class="quiet">The same as a command<pre>millstream jobs rewind {job.job} --to {to} {mode === "into" ? `--into=${suffix}` : "--again"}</pre></div>
        <div role="status">{phase === "working" && <p>stopping the job, rewinding, starting it again …</p>}{refused && <Trouble text={refused} />}</div>
        <div class="row">
          <button type="button" onClick={() => close(false)} disabled={phase === "working"}>Cancel</button>
          <button type="submit" class={`first ${mode === "again" ? "danger" : ""}`} disabled={!ready || phase === "working"}>Rewind to {where}</button>
        </div>
      </form>
    </Modal>
  );
}

function Will({ job, target: { to, after }, mode, suffix }: { job: JobDetail; target: Target; mode: Mode; suffix: string }) {
  const runs = job.state !== "stopped" && job.state !== "finished" && job.state !== "failed";
  const rows = after?.reduce((sum, commit) => sum + commit.rows, 0);
  return (
    <ul class="will">
      <li>{runs ? "The job is stopped after the current batch, and started again afterwards." : "The job is stopped, and stays stopped until you start it."}</li>
      <li>State, offsets and watermarks are reset to {to ? `batch ${to.batch}${to.at ? ` (${clock(to.at)})` : ""}` : "the start"}.</li>
      <li>{after ? `${counted(after.length, "later batch", "later batches")} with ${count(rows)} rows, and rows that arrive in the meantime, are read again.` : "All records that the topics still hold are read again."}</li>
      {(job.plan?.outputs ?? []).map((out) => <li key={out.output}><b>{out.output}</b> {mode === "into" ? <>stays; rows go to <b>{out.output}{suffix}</b>, which must not exist yet</> : fate(out)}</li>)}
      <li>Late and dead rows {mode === "into" ? `go to topics that end in ${suffix}` : "go to the same topics again"}.</li>
    </ul>
  );
}
