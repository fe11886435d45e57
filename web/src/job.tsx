import { useEffect, useState } from "preact/hooks";
import { bytes, clock, compact, count, since } from "./format";
import { Graph } from "./graph";
import { Pill, Tile } from "./jobs";
import { ask } from "./live";
import { Chart, Table } from "./results";
import { Timeline } from "./timeline";
import type { JobDetail, Result } from "./types";

export function Job({ job, results, act }: { job: JobDetail; results: Result[]; act: boolean }) {
  const narrow = useNarrow();
  return (
    <>
      <header class="jobhead" data-job={job.job}>
        <div>
          <a class="back" href="#/">← jobs</a>
          <h1>{job.job} <Pill state={job.state} /></h1>
          <p class="quiet">{job.file}{job.version && ` · version ${job.version}`} · {job.application} · {job.owner}{job.kafka && ` · Kafka ${job.kafka}`}</p>
          {job.reason && <p class="reason">{job.reason}</p>}
          {job.warnings.map((warning) => <p class="reason warn" key={warning}>{warning}</p>)}
        </div>
        {act && <Verbs job={job} />}
      </header>
      <section class="tiles" aria-label="the job in figures">
        <Tile label="rows/s" value={compact(job.rows_per_second)} fact="rate" />
        <Tile label="lag" value={job.lag === null ? "–" : compact(job.lag)} fact="lag" />
        <Tile label="rows read" value={count(job.rows)} fact="rows" />
        <Tile label="written" value={count(job.out)} fact="out" />
        <Tile label="late" value={count(job.late)} fact="late" />
        <Tile label="dead" value={count(job.dead)} fact="dead" />
        <Tile label="state" value={compact(job.state_rows)} note={`rows, ${bytes(job.state_bytes)}`} />
        <Tile label="watermark" value={slowest(job)} note={behind(job)} />
        <Tile label="restarts" value={count(job.restarts)} fact="restarts" />
      </section>
      {results.length > 0 && (
        <section class="results" aria-label="results">
          {results.map((result) => result.kind === "Chart" ? <Chart key={result.output} result={result} /> : <Table key={result.output} result={result} />)}
        </section>
      )}
      <section class="card"><h2>How rows flow</h2><Graph job={job} down={narrow} /></section>
      <section class="card"><h2>The last batches</h2><Timeline batches={job.batches_shown} /></section>
      <div class="two">
        <section class="card">
          <h2>Lag</h2>
          <div class="scroll"><table>
            <thead><tr><th>topic</th><th class="number">partition</th><th class="number">read to</th><th class="number">end</th><th class="number">lag</th></tr></thead>
            <tbody>{job.lags.map((l) => <tr key={`${l.source}/${l.partition}`}><td>{l.topic}</td><td class="number">{l.partition}</td><td class="number">{count(l.position)}</td><td class="number">{count(l.end)}</td><td class="number">{count(l.lag)}</td></tr>)}</tbody>
          </table></div>
        </section>
        <section class="card">
          <h2>What happened</h2>
          <ol class="events">{[...job.events].reverse().slice(0, 12).map((e, i) => <li key={i}><time dateTime={e.at}>{clock(e.at)}</time><b>{e.event}</b>{e.detail && e.event !== "launched" && <span class="quiet"> {e.detail}</span>}</li>)}</ol>
        </section>
      </div>
      {job.lanes && (
        <details class="card"><summary>How it runs: processes, tasks, files</summary>
          <div class="two">{job.lanes.map((lane) => (
            <div key={lane.lane}><h3>{lane.lane} lane <span class="quiet">{lane.when}</span></h3>
              <dl>{Object.entries(lane.runs).map(([word, does]) => <div key={word}><dt>{word}</dt><dd>{does}</dd></div>)}</dl>
              {lane.stages.map((stage) => (
                <dl key={stage.stage}><dt class="stage">{stage.stage}. {stage.name}</dt>
                  {Object.entries(stage.does).map(([word, does]) => <div key={word}><dt>{word}</dt><dd>{does}</dd></div>)}
                </dl>
              ))}
            </div>
          ))}</div>
          {(job.leaving ?? []).map((line) => <p class="quiet" key={line}>{line}</p>)}
        </details>
      )}
    </>
  );
}

function Verbs({ job }: { job: JobDetail }) {
  const [sure, doubt] = useState<string | null>(null);
  const [said, say] = useState<string | null>(null);
  const path = `/api/jobs/${encodeURIComponent(job.job)}`;
  const act = (verb: "stop" | "restart" | "remove") => async () => {
    if (sure !== verb && verb !== "restart") { doubt(verb); return; }
    doubt(null);
    try {
      await ask(verb === "remove" ? "DELETE" : "POST", verb === "remove" ? path : `${path}/${verb}`);
      say(`asked to ${verb}`);
    } catch (error) {
      say(String(error instanceof Error ? error.message : error));
    }
    setTimeout(() => say(null), 4000);
  };
  const stopped = job.state === "stopped" || job.state === "failed";
  return (
    <div class="verbs" onMouseLeave={() => doubt(null)}>
      {said && <span class="quiet" role="status">{said}</span>}
      <button onClick={act("restart")}>{stopped ? "Start" : "Restart"}</button>
      {!stopped && <button onClick={act("stop")}>{sure === "stop" ? "Really stop?" : "Stop"}</button>}
      {stopped && <button class="danger" onClick={act("remove")}>{sure === "remove" ? "Really remove?" : "Remove"}</button>}
    </div>
  );
}

function slowest(job: JobDetail): string {
  const known = Object.values(job.watermarks);
  if (!known.length || known.some((at) => at === null)) return "–";
  return clock([...(known as string[])].sort()[0]!);
}

function behind(job: JobDetail): string | undefined {
  const known = Object.values(job.watermarks).filter((at): at is string => at !== null).sort()[0];
  if (!known || known.startsWith("9999")) return undefined;
  return `${since(known)} behind`;
}

function useNarrow(): boolean {
  const query = matchMedia("(max-width: 700px)");
  const [narrow, set] = useState(query.matches);
  useEffect(() => {
    const heard = () => set(query.matches);
    query.addEventListener("change", heard);
    return () => query.removeEventListener("change", heard);
  }, []);
  return narrow;
}
