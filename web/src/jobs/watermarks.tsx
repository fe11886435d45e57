// Watermarks against the wall clock: per source, their history, and the partitions that delay them.

import { useMemo } from "preact/hooks";
import { clock, compact, count, NONE, seconds } from "../format";
import { useAsked } from "../live";
import { Empty, Trouble, Wait } from "../parts/facts";
import { Plot } from "../parts/plot";
import { address } from "../route";
import type { Instance, JobDetail, Lag, SourceFacts, WatermarkHistory } from "../types";

const EVERY = 2, LAST = 300;

export function Watermarks({ job }: { job: JobDetail }) {
  const { answer, error } = useAsked<WatermarkHistory>(`/api/jobs/${encodeURIComponent(job.job)}/watermarks?last=${LAST}`, EVERY);
  if (answer === null) return error ? <Trouble text={error} /> : <Wait />;
  if (!answer.points.length) return <Empty title="No batch yet"><p>The watermark is shown after the first batch.</p></Empty>;
  return (
    <>
      {error && <Trouble text={error} />}
      <section class="card">
        <h2>Watermarks</h2>
        <div class="scroll" tabIndex={0} role="region" aria-label="watermark per source"><table>
          <thead><tr><th scope="col">source</th><th scope="col">watermark</th><th scope="col">wall clock</th><th scope="col" class="number">delay</th><th scope="col">delayed by</th></tr></thead>
          <tbody>{answer.sources.map((source) => <Row key={source} source={source} history={answer} job={job} />)}</tbody>
        </table></div>
        <p class="quiet">No row with an earlier time than the watermark is expected. It is the smallest, over the partitions that are not idle, of the largest event time seen minus the declared delay.</p>
      </section>
      <section class="card"><h2>Delay behind the wall clock, per batch</h2><History history={answer} /></section>
      {Object.entries(job.sources).filter(([, facts]) => facts.instances.length > 0).map(([source, facts]) => (
        <Partitions key={source} source={source} facts={facts} now={answer.now} lags={job.lags.filter((lag) => lag.source === source)} />
      ))}
    </>
  );
}

/** Seconds from a watermark to the wall clock; null before the first row and at the end of time. */
const behind = (at: string | null, now: string): number | null =>
  at === null || at.startsWith("9999") ? null : Math.max(0, (Date.parse(now) - Date.parse(at)) / 1000);

const inWords = (late: number | null): string => (late === null ? NONE : seconds(late));

function Row({ source, history, job }: { source: string; history: WatermarkHistory; job: JobDetail }) {
  const last = history.points.at(-1)!;
  const at = last.watermarks[source] ?? null, by = last.held_by[source] ?? null;
  const ended = at !== null && at.startsWith("9999");
  const lag = job.lags.find((one) => one.source === source && one.partition === by);
  return (
    <tr>
      <th scope="row">{source}</th>
      <td>{at === null ? "no rows yet" : clock(at)}</td>
      <td>{clock(history.now)}</td>
      <td class="number">{inWords(behind(at, history.now))}</td>
      <td>{by === null ? (ended ? "none: its input has ended" : "none: all partitions are idle or empty") : (
        <>partition {by}{lag && <span class="quiet"> · {count(lag.lag)} unread · <a href={address("topics", lag.topic, "", { partition: String(by) })}>show records</a></span>}</>
      )}</td>
    </tr>
  );
}

function Partitions({ source, facts, now, lags }: { source: string; facts: SourceFacts; now: string; lags: Lag[] }) {
  return (
    <section class="card">
      <h2>Partitions of {source}</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label={`partitions of ${source}`}><table>
        <thead><tr><th scope="col" class="number">partition</th><th scope="col">watermark</th><th scope="col" class="number">delay</th><th scope="col">state</th><th scope="col" class="number">rows a second</th><th scope="col" class="number">rows</th><th scope="col" class="number">dead</th><th scope="col" class="number">unread</th></tr></thead>
        <tbody>{facts.instances.map((one) => <PartitionRow key={one.instance} one={one} holds={one.instance === String(facts.held_by)} now={now} lag={lags.find((lag) => String(lag.partition) === one.instance)} />)}</tbody>
      </table></div>
    </section>
  );
}

function PartitionRow({ one, holds, now, lag }: { one: Instance; holds: boolean; now: string; lag: Lag | undefined }) {
  return (
    <tr>
      <th scope="row" class="number">{one.instance}</th><td>{one.watermark ? clock(one.watermark) : NONE}</td><td class="number">{inWords(behind(one.watermark, now))}</td>
      <td>{one.idle ? <span class="tag">idle, not waited for</span> : holds ? <span class="tag waiting">delays the watermark</span> : <span class="quiet">ahead</span>}</td>
      <td class="number">{compact(one.rows_per_second)}</td><td class="number">{count(one.in)}</td><td class="number">{count(one.dead)}</td><td class="number">{count(lag?.lag)}</td>
    </tr>
  );
}

function History({ history }: { history: WatermarkHistory }) {
  const { x, series } = useMemo(() => ({
    x: history.points.map((point) => Date.parse(point.at) / 1000),
    series: history.sources.map((source) => ({ name: source, values: history.points.map((point) => point.delay[source] ?? null) })),
  }), [history]);
  return <Plot x={x} times series={series} unit={seconds} label="delay of the watermark behind the wall clock" />;
}
