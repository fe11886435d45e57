// The side outputs of a job: late rows, and dead rows, which no step could process.

import { useState } from "preact/hooks";
import { clock, count, counted, NONE } from "../format";
import { Empty } from "../parts/facts";
import { Given } from "../parts/given";
import { Icon } from "../parts/icon";
import { Paged } from "../parts/paged";
import { RecordWhole, BodyLine } from "../parts/record";
import { Tree } from "../parts/value";
import { address } from "../route";
import type { DeadPage, DeadRow, JobDetail, LatePage, LateRow, Value } from "../types";

export function SideOutputs({ job, query }: { job: JobDetail; query: URLSearchParams }) {
  const dead = query.has("output") ? query.get("output") === "dead" : job.dead > 0 && job.late === 0;
  const to = (output: string) => address("jobs", job.job, "side-outputs", { output });
  return (
    <section class="card" aria-labelledby="side-outputs">
      <div class="titled">
        <h2 id="side-outputs">{dead ? "Dead rows" : "Late rows"} <span class="quiet">{dead ? `rows that could not be processed: ${count(job.dead)}` : `rows whose window had been emitted: ${count(job.late)}`}</span></h2>
        <nav class="row" aria-label="side output">
          <a class="button" href={to("late")} aria-current={dead ? undefined : "page"}>Late</a>
          <a class="button" href={to("dead")} aria-current={dead ? "page" : undefined}>Dead</a>
        </nav>
      </div>
      {dead ? <Dead job={job} /> : <Late job={job} />}
    </section>
  );
}

function Late({ job }: { job: JobDetail }) {
  const [step, choose] = useState("");
  const [topic, take] = useState("");
  const [topics, know] = useState<string[]>([]);
  const steps = Object.entries(job.steps).filter(([, facts]) => facts.late > 0).map(([name]) => name);
  return (
    <>
      <div class="form">
        <label class="field">step<select value={step} onChange={(event) => choose(event.currentTarget.value)}><option value="">every step</option>{steps.map((one) => <option key={one}>{one}</option>)}</select></label>
        {topics.length > 1 && <label class="field">topic<select value={topic} onChange={(event) => take(event.currentTarget.value)}><option value="">the first</option>{topics.map((one) => <option key={one}>{one}</option>)}</select></label>}
      </div>
      <Paged<LatePage> path={`/api/jobs/${encodeURIComponent(job.job)}/late`} query={{ step, topic }} onPage={(page) => know(page.topics)} rows={(page) => page.rows.length} mark={(page) => page.rows.at(-1)?.position ?? ""} none={(page) => page.topic === null
        ? <Empty title="The late rows of this job are not in a topic or folder"><p>{page.other_sinks.length ? `They go to ${page.other_sinks.join(", ")}.` : "They are counted and discarded (ms.discard)."}</p></Empty>
        : <Empty title="No late rows" />}>
        {(page) => <ul class="records">{[...page.rows].reverse().map((row) => <LateLine key={row.position} row={row} />)}</ul>}
      </Paged>
    </>
  );
}

function LateLine({ row }: { row: LateRow }) {
  const [open, set] = useState(false);
  const { source, partition, offset } = row.origin;
  return (
    <li class="record" data-position={row.position}>
      <button type="button" class="record-line" aria-expanded={open} onClick={() => set(!open)}>
        <Icon name={open ? "down" : "right"} /><time dateTime={row.at}>{clock(row.at)}</time><span class="tag">{row.step}</span>
        <span class="value-line mono"><BodyLine body={row.row} /></span>
      </button>
      {open && (
        <div class="record-whole">
          <dl class="words">
            <dt>reason</dt><dd><Given text={row.reason} /></dd>
            <dt>watermark</dt><dd>{row.watermark ? clock(row.watermark) : NONE}</dd>
            {row.windows.length > 0 && <><dt>windows</dt><dd>{row.windows.map((w) => `${clock(w.start)} to ${clock(w.end)}`).join("; ")}</dd></>}
            <dt>origin</dt><dd><a href={address("topics", source, "", { partition: String(partition), at: `@${offset}` })}>{source}, partition {partition}, offset {count(offset)}</a></dd>
          </dl>
          <LateBody text={row.row.text} cut={row.row.cut} size={row.row.size} />
        </div>
      )}
    </li>
  );
}

function LateBody({ text, cut, size }: { text: string; cut: boolean; size: number }) {
  if (!cut) {
    try {
      return <Tree value={JSON.parse(text) as Value} />;
    } catch { /* shown as text below */ }
  }
  return <div class="body mono"><Given text={text} first={4000} size={size} /></div>;
}

const STATES = ["", "waiting", "retried", "dropped"];

function Dead({ job }: { job: JobDetail }) {
  const [reason, write] = useState("");
  const [state, choose] = useState("");
  const [asked, ask] = useState("");
  return (
    <>
      <form class="form" onSubmit={(event) => { event.preventDefault(); ask(reason); }}>
        <label class="field grow">reason contains<input value={reason} onInput={(event) => write(event.currentTarget.value)} onBlur={() => ask(reason)} placeholder="not JSON" spellcheck={false} autocomplete="off" /></label>
        <label class="field">state<select value={state} onChange={(event) => choose(event.currentTarget.value)}>{STATES.map((one) => <option key={one} value={one}>{one || "all"}</option>)}</select></label>
        <button type="submit">Filter</button>
      </form>
      <Paged<DeadPage> path={`/api/jobs/${encodeURIComponent(job.job)}/dead`} query={{ reason: asked, state }} rows={(page) => page.rows.length} mark={(page) => page.rows.at(-1)?.position ?? ""} none={(page) => page.topic === null
        ? <Empty title="The dead rows of this job are not in a topic or folder"><p>They go to {page.other_sinks.join(", ")}.</p></Empty>
        : <Empty title="No dead rows"><p>{asked || state ? "No dead row matches the filter." : `${page.topic} is empty: every row was processed.`}</p></Empty>}>
        {(page) => (
          <>
            <ul class="records">{[...page.rows].reverse().map((row) => <DeadLine key={row.position} row={row} />)}</ul>
            {page.unreadable > 0 && <p class="quiet">{counted(page.unreadable, "record")} of {page.topic} could not be read as dead rows; another program wrote them.</p>}
          </>
        )}
      </Paged>
      <p class="quiet">When the cause is fixed, <code>millstream dead retry {job.job}</code> sends each of them once more; <code>millstream dead drop {job.job}</code> marks them as done.</p>
    </>
  );
}

function DeadLine({ row }: { row: DeadRow }) {
  const [open, set] = useState(false);
  return (
    <li class="record" data-position={row.position}>
      <button type="button" class="record-line" aria-expanded={open} onClick={() => set(!open)}>
        <Icon name={open ? "down" : "right"} /><time dateTime={row.record.timestamp}>{clock(row.record.timestamp)}</time><span class={`tag ${row.state}`}>{row.state}</span>
        <span class="reason"><Given text={row.reason.slice(0, 160)} /></span>
        <span class="value-line mono"><BodyLine body={row.record.value} /></span>
      </button>
      {open && (
        <div>
          <dl class="words"><dt>reason</dt><dd><Given text={row.reason} /></dd><dt>step</dt><dd>{row.step}</dd></dl>
          <RecordWhole record={row.record} />
        </div>
      )}
    </li>
  );
}
