import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Job } from "./job";
import { Jobs } from "./jobs";
import { forgetToken, token, watch, type Link } from "./live";
import mark from "./mark.svg";
import "./style.css";
import type { JobDetail, JobFacts, Result } from "./types";

const REMEMBERED = 60;

function route(): string | null {
  const match = /^#\/jobs\/([^/]+)$/.exec(location.hash);
  return match ? decodeURIComponent(match[1]!) : null;
}

function App() {
  const [known, setKnown] = useState(token() !== null);
  const [chosen, choose] = useState(route());
  const [link, setLink] = useState<Link>("connecting");
  const [jobs, setJobs] = useState<JobFacts[] | null>(null);
  const [detail, setDetail] = useState<{ job: JobDetail; results: Result[] } | null>(null);
  const lags = useRef(new Map<string, number[]>());
  useEffect(() => {
    const heard = () => { setKnown(token() !== null); choose(route()); };
    addEventListener("hashchange", heard);
    return () => removeEventListener("hashchange", heard);
  }, []);
  useEffect(() => {
    if (!known) return;
    const refused = (state: Link) => {
      setLink(state);
      if (state === "refused") { forgetToken(); setKnown(false); }
      if (state === "gone") location.hash = "#/";
    };
    if (chosen !== null) {
      setDetail(null);
      return watch<{ job: JobDetail; results: Result[] }>(`/api/jobs/${encodeURIComponent(chosen)}/stream`, setDetail, refused);
    }
    return watch<{ jobs: JobFacts[] }>("/api/stream", (picture) => {
      for (const job of picture.jobs) {
        lags.current.set(job.job, [...(lags.current.get(job.job) ?? []), job.lag ?? 0].slice(-REMEMBERED));
      }
      setJobs(picture.jobs);
    }, refused);
  }, [chosen, known]);
  useEffect(() => { document.title = chosen ? `${chosen} · Millstream` : "Millstream"; }, [chosen]);
  return (
    <>
      <header class="top">
        <a href="#/" class="brand"><img src={mark} alt="" width="28" height="28" />Millstream</a>
        {known && <span class={`link ${link}`} role="status"><i />{link === "live" ? "live" : "connecting …"}</span>}
      </header>
      <main>
        {!known ? <NoToken /> : chosen !== null ? (detail ? <Job job={detail.job} results={detail.results} act={link === "live"} /> : <Wait />) : jobs ? <Jobs jobs={jobs} lags={lags.current} /> : <Wait />}
      </main>
    </>
  );
}

const Wait = () => <p class="quiet wait">one moment …</p>;

function NoToken() {
  return (
    <section class="card empty">
      <h2>This page needs its token</h2>
      <p>Open the link that <code>millstream up</code> printed; <code>millstream status</code> prints it again.</p>
    </section>
  );
}

render(<App />, document.getElementById("app")!);
