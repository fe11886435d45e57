import { compact, count, since } from "./format";
import { Spark } from "./spark";
import type { JobFacts, State } from "./types";

export function Pill({ state }: { state: State }) {
  return <span class={`pill ${state.replace(" ", "-")}`} data-fact="state">{state}</span>;
}

export function Jobs({ jobs, lags }: { jobs: JobFacts[]; lags: Map<string, number[]> }) {
  if (!jobs.length) {
    return (
      <section class="card empty">
        <h2>No jobs yet</h2>
        <p>Hand one to the supervisor:</p>
        <pre>millstream jobs submit hot.py</pre>
        <p>or see a whole shop at work with <code>millstream demo</code>.</p>
      </section>
    );
  }
  const sum = (pick: (job: JobFacts) => number) => jobs.reduce((total, job) => total + pick(job), 0);
  return (
    <>
      <section class="tiles" aria-label="all jobs">
        <Tile label="jobs" value={count(jobs.length)} />
        <Tile label="rows/s" value={compact(sum((j) => j.rows_per_second))} />
        <Tile label="lag" value={compact(sum((j) => j.lag ?? 0))} />
        <Tile label="need a look" value={count(jobs.filter((j) => ["failing", "failed", "hung"].includes(j.state)).length)} />
      </section>
      <ul class="jobs">
        {jobs.map((job) => <JobCard key={job.job} job={job} lag={lags.get(job.job) ?? []} />)}
      </ul>
    </>
  );
}

export function Tile({ label, value, fact, note }: { label: string; value: string; fact?: string; note?: string }) {
  return (
    <div class="tile" data-fact={fact}>
      <span class="label">{label}</span>
      <span class="value">{value}</span>
      {note && <span class="note">{note}</span>}
    </div>
  );
}

function JobCard({ job, lag }: { job: JobFacts; lag: number[] }) {
  return (
    <li class="card job" data-job={job.job}>
      <a href={`#/jobs/${encodeURIComponent(job.job)}`}>
        <header>
          <strong>{job.job}</strong>
          <Pill state={job.state} />
          <span class="quiet">for {since(job.since)}</span>
        </header>
        {job.reason && <p class="reason">{job.reason}</p>}
        {job.warnings.map((warning) => <p class="reason warn" key={warning}>{warning}</p>)}
        <div class="figures">
          <Figure label="rows/s" value={compact(job.rows_per_second)} fact="rate"><Spark values={job.rates} label="rows a second, last minute" /></Figure>
          <Figure label="lag" value={job.lag === null ? "–" : compact(job.lag)} fact="lag"><Spark values={lag} label="lag, last minute" /></Figure>
          <Figure label="rows read" value={count(job.rows)} fact="rows" />
          <Figure label="written" value={count(job.out)} fact="out" />
          <Figure label="late" value={count(job.late)} fact="late" />
          <Figure label="dead" value={count(job.dead)} fact="dead" />
          <Figure label="restarts" value={count(job.restarts)} fact="restarts" />
        </div>
        <footer class="quiet">{job.application} · {job.owner}{job.version && ` · version ${job.version}`}{job.phase && job.phase !== "running" && ` · ${job.phase}`}</footer>
      </a>
    </li>
  );
}

function Figure({ label, value, fact, children }: { label: string; value: string; fact: string; children?: preact.ComponentChildren }) {
  return (
    <div class={children ? "figure wide" : "figure"}>
      <span class="label">{label}</span>
      <span class="value" data-fact={fact}>{value}</span>
      {children}
    </div>
  );
}
