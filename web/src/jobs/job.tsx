// One job: its head with the verbs, and a tab for each way to look at it.

import { useEffect, useState } from "preact/hooks";
import { compact } from "../format";
import { tell, told, useWatched } from "../live";
import { useConnection } from "../connection";
import { Empty, Pill, Tabs, Trouble, Wait } from "../parts/facts";
import { address } from "../route";
import { useTick } from "../tick";
import type { JobDetail, Result } from "../types";
import { CommitsView } from "./commits";
import { Doors } from "./doors";
import { LogView } from "./log";
import { Overview } from "./overview";
import { Plans } from "./plans";
import { StateView } from "./state";
import { Watermarks } from "./watermarks";

const TABS: [tab: string, words: string][] = [
  ["", "Overview"], ["plan", "Plan"], ["time", "Event time"], ["doors", "Late and dead"], ["commits", "Commits"], ["state", "State"], ["log", "Log"],
];

export function Job({ name, tab, query }: { name: string; tab: string; query: URLSearchParams }) {
  const { picture, gone } = useWatched<{ job: JobDetail; results: Result[] }>(`/api/jobs/${encodeURIComponent(name)}/stream`);
  useTick(2);
  if (gone !== null) return <Empty title={`There is no job ${name}`}><p>{gone}</p><a class="button" href={address("jobs")}>All jobs</a></Empty>;
  if (picture === null) return <><header class="head"><h1>{name}</h1></header><Wait /></>;
  const { job, results } = picture;
  const left = job.late + job.dead;
  return (
    <>
      <Head job={job} />
      <Tabs label={`ways to look at ${name}`} here={tab} tabs={TABS.map(([to, words]) => ({ tab: to, words, href: address("jobs", name, to), tally: to === "doors" && left ? compact(left) : null }))} />
      <Shown job={job} results={results} tab={tab} query={query} />
    </>
  );
}

function Shown({ job, results, tab, query }: { job: JobDetail; results: Result[]; tab: string; query: URLSearchParams }) {
  switch (tab) {
    case "": return <Overview job={job} results={results} />;
    case "plan": return <Plans job={job} />;
    case "time": return <Watermarks job={job} />;
    case "doors": return <Doors job={job} query={query} />;
    case "commits": return <CommitsView job={job} />;
    case "state": return <StateView job={job} />;
    case "log": return <LogView job={job} />;
    default: return <Empty title="There is no such tab" />;
  }
}

function Head({ job }: { job: JobDetail }) {
  return (
    <>
      <header class="head" data-job={job.job}>
        <div>
          <a class="crumb" href={address("jobs")}>Jobs /</a>
          <h1>{job.job} <Pill state={job.state} /></h1>
          <p class="quiet">{job.file}{job.version && <> · version <span class="mono">{job.version.slice(0, 8)}</span></>} · {job.application} · {job.owner}{job.kafka && ` · Kafka ${job.kafka}`}{job.pid !== null && ` · process ${job.pid}`}</p>
        </div>
        <Verbs job={job} />
      </header>
      {job.reason && <Trouble text={job.reason} />}
      {job.warnings.map((warning) => <Trouble key={warning} text={warning} warn />)}
    </>
  );
}

type Verb = "stop" | "restart" | "remove";
const SURE: Record<Verb, string> = { stop: "Really stop?", restart: "Really restart?", remove: "Really remove?" };

/** What ends something is asked twice; the doubt goes away with the focus, or after a while. */
function Verbs({ job }: { job: JobDetail }) {
  const [doubted, doubt] = useState<Verb | null>(null);
  const [said, say] = useState<string | null>(null);
  const live = useConnection().link === "live";
  const path = `/api/jobs/${encodeURIComponent(job.job)}`;
  useEffect(() => {
    if (said === null && doubted === null) return;
    const over = setTimeout(() => { say(null); doubt(null); }, 6000);
    return () => clearTimeout(over);
  }, [said, doubted]);
  const stopped = job.state === "stopped" || job.state === "failed";
  const act = (verb: Verb, sure: boolean) => async () => {
    if (!sure && doubted !== verb) { doubt(verb); return; }
    doubt(null);
    try {
      await (verb === "remove" ? tell("DELETE", path) : tell("POST", `${path}/${verb}`));
      say(`asked to ${verb === "restart" && stopped ? "start" : verb}`);
    } catch (error) {
      say(told(error));
    }
  };
  return (
    <div class="row">
      {stopped
        ? <button type="button" class="first" disabled={!live} onClick={act("restart", true)}>Start</button>
        : <button type="button" disabled={!live} onClick={act("restart", false)}>{doubted === "restart" ? SURE.restart : "Restart"}</button>}
      {!stopped && <button type="button" class="danger" disabled={!live} onClick={act("stop", false)}>{doubted === "stop" ? SURE.stop : "Stop"}</button>}
      {stopped && <button type="button" class="danger" disabled={!live} onClick={act("remove", false)}>{doubted === "remove" ? SURE.remove : "Remove"}</button>}
      <span class="quiet" role="status">{said}</span>
    </div>
  );
}
