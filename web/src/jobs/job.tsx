// One job: its header with the commands, and its tabs.

import { useEffect, useState } from "preact/hooks";
import { compact } from "../format";
import { send, errorText, useWatched } from "../live";
import { useConnection } from "../connection";
import { Empty, Pill, Tabs, Wait } from "../parts/facts";
import { address } from "../route";
import { useTick } from "../tick";
import type { JobDetail, Result } from "../types";
import { CommitsView } from "./commits";
import { LogView } from "./log";
import { Overview } from "./overview";
import { Plans } from "./plans";
import { Reasons } from "./reasons";
import { SideOutputs } from "./side_outputs";
import { StateView } from "./state";
import { Watermarks } from "./watermarks";

const TABS: [tab: string, words: string][] = [
  ["", "Overview"], ["plan", "Plan"], ["time", "Event time"], ["side-outputs", "Late and dead"], ["commits", "Commits"], ["state", "State"], ["log", "Log"],
];

export function Job({ name, tab, query }: { name: string; tab: string; query: URLSearchParams }) {
  const { snapshot, gone } = useWatched<{ job: JobDetail; results: Result[] }>(`/api/jobs/${encodeURIComponent(name)}/stream`);
  useTick(2);
  if (gone !== null) return <Empty title={`Job ${name} not found`}><p>{gone}</p><a class="button" href={address("jobs")}>All jobs</a></Empty>;
  if (snapshot === null) return <><header class="head"><h1>{name}</h1></header><Wait /></>;
  const { job, results } = snapshot;
  const sideOutputRows = job.late + job.dead;
  return (
    <>
      <Head job={job} />
      <Tabs label={`views of ${name}`} here={tab} tabs={TABS.map(([to, words]) => ({ tab: to, words, href: address("jobs", name, to), tally: to === "side-outputs" && sideOutputRows ? compact(sideOutputRows) : null }))} />
      <Shown job={job} results={results} tab={tab} query={query} />
    </>
  );
}

function Shown({ job, results, tab, query }: { job: JobDetail; results: Result[]; tab: string; query: URLSearchParams }) {
  switch (tab) {
    case "": return <Overview job={job} results={results} />;
    case "plan": return <Plans job={job} />;
    case "time": return <Watermarks job={job} />;
    case "side-outputs": return <SideOutputs job={job} query={query} />;
    case "commits": return <CommitsView job={job} />;
    case "state": return <StateView job={job} />;
    case "log": return <LogView job={job} />;
    default: return <Empty title="Tab not found" />;
  }
}

function Head({ job }: { job: JobDetail }) {
  return (
    <>
      <header class="head" data-job={job.job}>
        <div>
          <a class="crumb" href={address("jobs")}>Jobs /</a>
          <h1>{job.job} <Pill state={job.state} /></h1>
          <p class="quiet">{job.file}{job.version && <> · version <span class="mono">{job.version.slice(0, 8)}</span></>} · {job.application} · {job.owner}{job.kafka && ` · Kafka ${job.kafka}`}{job.pid !== null && ` · process ${job.pid}`}{job.spark_ui && <> · <SparkUi at={job.spark_ui} /></>}</p>
        </div>
        <Verbs job={job} />
      </header>
      <Reasons job={job} />
    </>
  );
}

/** Spark's own page, in a tab of its own; an address of another kind than http is only shown. */
function SparkUi({ at }: { at: string }) {
  return /^https?:\/\//.test(at) ? <a href={at} target="_blank" rel="noopener noreferrer">Spark UI</a> : <>{at}</>;
}

type Verb = "stop" | "restart" | "remove";
const CONFIRM: Record<Verb, string> = { stop: "Really stop?", restart: "Really restart?", remove: "Really remove?" };

/** Commands that end a job need a second click within six seconds. */
function Verbs({ job }: { job: JobDetail }) {
  const [unconfirmed, setUnconfirmed] = useState<Verb | null>(null);
  const [said, say] = useState<string | null>(null);
  const live = useConnection().link === "live";
  const path = `/api/jobs/${encodeURIComponent(job.job)}`;
  useEffect(() => {
    if (said === null && unconfirmed === null) return;
    const over = setTimeout(() => { say(null); setUnconfirmed(null); }, 6000);
    return () => clearTimeout(over);
  }, [said, unconfirmed]);
  const stopped = job.state === "stopped" || job.state === "finished" || job.state === "failed";
  const act = (verb: Verb, immediate: boolean) => async () => {
    if (!immediate && unconfirmed !== verb) { setUnconfirmed(verb); return; }
    setUnconfirmed(null);
    try {
      await (verb === "remove" ? send("DELETE", path) : send("POST", `${path}/${verb}`));
      say(`${verb === "restart" && stopped ? "start" : verb} requested`);
    } catch (error) {
      say(errorText(error));
    }
  };
  return (
    <div class="row">
      {stopped
        ? <button type="button" class="first" disabled={!live} onClick={act("restart", true)}>Start</button>
        : <button type="button" disabled={!live} onClick={act("restart", false)}>{unconfirmed === "restart" ? CONFIRM.restart : "Restart"}</button>}
      {!stopped && <button type="button" class="danger" disabled={!live} onClick={act("stop", false)}>{unconfirmed === "stop" ? CONFIRM.stop : "Stop"}</button>}
      {stopped && <button type="button" class="danger" disabled={!live} onClick={act("remove", false)}>{unconfirmed === "remove" ? CONFIRM.remove : "Remove"}</button>}
      <span class="quiet" role="status">{said}</span>
    </div>
  );
}
