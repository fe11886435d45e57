// Why a job is in its state: what it waits for and since when, or what is wrong.

import { clock, since } from "../format";
import { Trouble } from "../parts/facts";
import type { JobFacts } from "../types";

export function Reasons({ job }: { job: JobFacts }) {
  return (
    <>
      {job.outages.map((one) => (
        <p key={one.system} class="trouble warn" data-fact="outage" role="status">
          <strong>{one.kind === "waiting" ? `waiting for ${one.system}` : one.system}</strong> for {since(one.since)}: {one.why}
          {one.next_try && <span class="quiet"> · next try {clock(one.next_try)}</span>}
        </p>
      ))}
      {job.reason && !job.outages.length && (job.state === "running" ? <p class="quiet" data-fact="reason">{job.reason}</p> : <Trouble text={job.reason} />)}
      {job.warnings.filter((warning) => warning !== job.reason).map((warning) => <Trouble key={warning} text={warning} warn />)}
    </>
  );
}
