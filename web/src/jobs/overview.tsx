// Overview of a job: figures, results, data flow, the last batches, lag and events.

import { bytes, clock, compact, count, NONE, since } from "../format";
import { Tile, Tiles } from "../parts/facts";
import { address } from "../route";
import type { JobDetail, Lag, Result } from "../types";
import { Graph, TimeLegend } from "./graph";
import { Results } from "./results";
import { Timeline } from "./timeline";

const EVENTS = 12;

export function Overview({ job, results }: { job: JobDetail; results: Result[] }) {
  return (
    <>
      <Figures job={job} />
      <Results results={results} />
      <section class="card"><h2>Data flow</h2><Graph job={job} /><TimeLegend /></section>
      <section class="card"><h2>The last batches</h2><Timeline batches={job.batches_shown} /></section>
      <div class="two">
        <Lags lags={job.lags} />
        <section class="card">
          <h2>Events</h2>
          <ol class="events">{[...job.events].reverse().slice(0, EVENTS).map((e, i) => <li key={i}><time dateTime={e.at}>{clock(e.at)}</time><span><b>{e.event}</b>{e.detail && e.event !== "launched" && <span class="quiet"> {e.detail}</span>}</span></li>)}</ol>
        </section>
      </div>
    </>
  );
}

function Figures({ job }: { job: JobDetail }) {
  const known = Object.values(job.watermarks);
  const slowest = known.includes(null) ? undefined : [...(known as string[])].sort()[0];
  const behind = slowest && !slowest.startsWith("9999") ? `${since(slowest)} behind` : undefined;
  return (
    <Tiles label="summary of the job">
      <Tile label="rows a second" value={compact(job.rows_per_second)} fact="rate" />
      <Tile label="lag" value={compact(job.lag)} fact="lag" note="unread" />
      <Tile label="rows read" value={count(job.rows)} fact="rows" />
      <Tile label="written" value={count(job.out)} fact="out" />
      <Tile label="late" value={count(job.late)} fact="late" />
      <Tile label="dead" value={count(job.dead)} fact="dead" tone={job.dead ? "warn" : ""} />
      <Tile label="state" value={compact(job.state_rows)} note={`rows, ${bytes(job.state_bytes)}`} />
      <Tile label="checkpoint" value={job.checkpoint_bytes === null ? NONE : bytes(job.checkpoint_bytes)} note={job.checkpoint_files === null ? undefined : `${count(job.checkpoint_files)} files`} />
      <Tile label="watermark" value={slowest ? clock(slowest) : NONE} note={behind} />
      <Tile label="restarts" value={count(job.restarts)} fact="restarts" />
    </Tiles>
  );
}

function Lags({ lags }: { lags: Lag[] }) {
  return (
    <section class="card">
      <h2>Lag</h2>
      {lags.length ? (
        <div class="scroll" tabIndex={0} role="region" aria-label="lag per partition"><table>
          <thead><tr><th scope="col">topic</th><th scope="col" class="number">partition</th><th scope="col" class="number">read to</th><th scope="col" class="number">end</th><th scope="col" class="number">lag</th></tr></thead>
          <tbody>{lags.map((l) => <tr key={`${l.source}/${l.partition}`}><td><a href={address("topics", l.topic)}>{l.topic}</a></td><td class="number">{l.partition}</td><td class="number">{count(l.position)}</td><td class="number">{count(l.end)}</td><td class="number">{count(l.lag)}</td></tr>)}</tbody>
        </table></div>
      ) : <p class="quiet">Unknown: the job has not read anything yet, or reads no topic.</p>}
    </section>
  );
}
