// Rows that left by another door: too late for their window, or taken by no step. None is dropped in silence.

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

export function Doors({ job, query }: { job: JobDetail; query: URLSearchParams }) {
  const dead = query.has("door") ? query.get("door") === "dead" : job.dead > 0 && job.late === 0;
  const to = (door: string) => address("jobs", job.job, "doors", { door });
  return (
    <section class="card" aria-labelledby="doors">
      <div class="titled">
        <h2 id="doors">{dead ? "Dead rows" : "Late rows"} <span class="quiet">{dead ? `rows no step could take: ${count(job.dead)} in all` : `rows whose window had left: ${count(job.late)} in all`}</span></h2>
        <nav class="row" aria-label="which door">
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
      <Paged<LatePage> path={`/api/jobs/${encodeURIComponent(job.job)}/late`} query={{ step, topic }} heard={(page) => know(page.topics)} rows={(page) => page.rows.length} mark={(page) => page.rows.at(-1)?.position ?? ""} none={(page) => page.topic === null
        ? <Empty title="Late rows of this job are not shown here"><p>{page.other_sinks.length ? `They go to ${page.other_sinks.join(", ")}.` : "They are discarded, by the word ms.discard, and counted."}</p></Empty>
        : <Empty title="No late row here" />}>
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
            <dt>came from</dt><dd><a href={address("topics", source, "", { partition: String(partition), at: `@${offset}` })}>{source}, partition {partition}, offset {count(offset)}</a></dd>
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
        <label class="field grow">reason has<input value={reason} onInput={(event) => write(event.currentTarget.value)} onBlur={() => ask(reason)} placeholder="not JSON" spellcheck={false} autocomplete="off" /></label>
        <label class="field">state<select value={state} onChange={(event) => choose(event.currentTarget.value)}>{STATES.map((one) => <option key={one} value={one}>{one || "all"}</option>)}</select></label>
        <button type="submit">Filter</button>
      </form>
      <Paged<DeadPage> path={`/api/jobs/${encodeURIComponent(job.job)}/dead`} query={{ reason: asked, state }} rows={(page) => page.rows.length} mark={(page) => page.rows.at(-1)?.position ?? ""} none={(page) => page.topic === null
        ? <Empty title="Dead rows of this job are not shown here"><p>They go to {page.other_sinks.join(", ")}.</p></Empty>
        : <Empty title="No dead row here"><p>{asked || state ? "None is like that." : `${page.topic} is empty: every row could be taken.`}</p></Empty>}>
        {(page) => (
          <>
            <ul class="records">{[...page.rows].reverse().map((row) => <DeadLine key={row.position} row={row} />)}</ul>
            {page.unreadable > 0 && <p class="quiet">{counted(page.unreadable, "record")} of {page.topic} came from elsewhere and cannot be read as dead rows.</p>}
          </>
        )}
      </Paged>
      <p class="quiet">When what stood in their way is mended: <code>millstream dead retry {job.job}</code> sends them again, each once; <code>millstream dead drop {job.job}</code> says that nothing is to be done.</p>
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
