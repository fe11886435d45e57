// All jobs with their key figures.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { compact, count, counted, since } from "../format";
import { useWatched } from "../live";
import { Empty, Pill, Spark, Tile, Tiles, Wait } from "../parts/facts";
import { address } from "../route";
import { useTick } from "../tick";
import type { JobFacts } from "../types";
import { Reasons } from "./reasons";

const LAG_SAMPLES = 60;
const NEED_ATTENTION = ["waiting", "degraded", "failing", "failed"];

export function Jobs() {
  const { snapshot } = useWatched<{ jobs: JobFacts[] }>("/api/stream");
  useTick(2);
  const lags = useRef(new Map<string, number[]>());
  useEffect(() => {
    for (const job of snapshot?.jobs ?? []) {
      lags.current.set(job.job, [...(lags.current.get(job.job) ?? []), job.lag ?? 0].slice(-LAG_SAMPLES));
    }
  }, [snapshot]);
  return (
    <>
      <header class="head"><h1>Jobs</h1></header>
      {snapshot === null ? <Wait /> : snapshot.jobs.length ? <Listed jobs={snapshot.jobs} lags={lags.current} /> : <None />}
    </>
  );
}

const None = () => (
  <Empty title="No jobs yet">
    <p>Submit one to the supervisor:</p>
    <pre>millstream jobs submit hot.py</pre>
    <p>or start a sample shop with <code>millstream demo</code>.</p>
  </Empty>
);

function Listed({ jobs, lags }: { jobs: JobFacts[]; lags: Map<string, number[]> }) {
  const sum = (pick: (job: JobFacts) => number) => jobs.reduce((total, job) => total + pick(job), 0);
  const wrong = jobs.filter((job) => NEED_ATTENTION.includes(job.state)).length;
  return (
    <>
      <Tiles label="all jobs">
        <Tile label="jobs" value={count(jobs.length)} note={`${count(jobs.filter((job) => job.pid !== null).length)} with a process`} />
        <Tile label="rows a second" value={compact(sum((job) => job.rows_per_second))} />
        <Tile label="lag" value={compact(sum((job) => job.lag ?? 0))} note="unread records" />
        <Tile label="need attention" value={count(wrong)} tone={wrong ? "bad" : ""} note={wrong ? kinds(jobs) : "none"} />
      </Tiles>
      <ul class="jobs">{jobs.map((job) => <Card key={job.job} job={job} lag={lags.get(job.job) ?? []} />)}</ul>
    </>
  );
}

const kinds = (jobs: JobFacts[]) => NEED_ATTENTION.filter((state) => jobs.some((job) => job.state === state)).join(", ");

function Card({ job, lag }: { job: JobFacts; lag: number[] }) {
  return (
    <li class="card job" data-job={job.job}>
      <header>
        <h2><a href={address("jobs", job.job)}>{job.job}</a></h2>
        <Pill state={job.state} />
        <span class="quiet">for {since(job.since)}</span>
      </header>
      <Reasons job={job} />
      <dl class="figures">
        <Figure label="rows a second" value={compact(job.rows_per_second)} fact="rate"><Spark values={job.rates} label="rows a second in the last minute" /></Figure>
        <Figure label="lag" value={compact(job.lag)} fact="lag"><Spark values={lag} label="lag since the page was opened" /></Figure>
        <Figure label="rows read" value={count(job.rows)} fact="rows" />
        <Figure label="written" value={count(job.out)} fact="out" />
        <Figure label="late" value={count(job.late)} fact="late" />
        <Figure label="dead" value={count(job.dead)} fact="dead" />
        <Figure label="restarts" value={count(job.restarts)} fact="restarts" />
      </dl>
      <footer class="quiet">
        {job.application} · {job.owner} · {counted(job.batches, "batch", "batches")}
        {job.version && <> · version <span class="mono">{job.version.slice(0, 8)}</span></>}
        {job.phase && job.phase !== "running" && ` · ${job.phase}`}
      </footer>
    </li>
  );
}

function Figure({ label, value, fact, children }: { label: string; value: string; fact: string; children?: ComponentChildren }) {
  return (
    <div class={`figure ${children ? "wide" : ""} fact-${fact}`}>
      <dt class="label">{label}</dt>
      <dd class="value" data-fact={fact}>{value}</dd>
      {children && <dd>{children}</dd>}
    </div>
  );
}
