// The commits of a job, newest first, each with a button to rewind to it.

import { useEffect, useState } from "preact/hooks";
import { clock, count, counted, NONE, seconds } from "../format";
import { ask, errorText, useAsked } from "../live";
import { Empty, Trouble, Wait } from "../parts/facts";
import { useHeld } from "../parts/held";
import type { Commit, Commits, JobDetail } from "../types";
import { Rewind, type Target } from "./rewind";

const EVERY = 3, PAGE = 50;

export function CommitsView({ job }: { job: JobDetail }) {
  const path = `/api/jobs/${encodeURIComponent(job.job)}/commits?last=${PAGE}`;
  const { answer: found, error, again } = useAsked<Commits>(path, EVERY);
  const { shown: answer, newer, release } = useHeld(found, path, (page) => String(page.commits.at(-1)?.batch));
  const [older, add] = useState<Commit[]>([]);
  const [earlier, setEarlier] = useState<number | null>(null);
  const [refused, say] = useState<string | null>(null);
  const [target, aim] = useState<Target | null>(null);
  useEffect(() => { if (answer && !older.length) setEarlier(answer.earlier); }, [answer]);
  if (answer === null) return error ? <Trouble text={error} /> : <Wait />;
  if (!answer.commits.length) return <Empty title="No commits yet" />;
  const all = joined(answer.commits, older);
  const back = async () => {
    try {
      const page = await ask<Commits>(`${path}&before=${earlier}`);
      add(joined(page.commits, older));
      setEarlier(page.earlier);
      say(null);
    } catch (error) {
      say(errorText(error));
    }
  };
  const choose = (index: number) => aim({ to: all[index]!, after: all.slice(0, index), suffix: (found ?? answer).suffix });
  return (
    <section class="card" aria-labelledby="commits">
      <div class="titled">
        <h2 id="commits">Commits <span class="quiet">one per batch; the job can be rewound to any that is kept</span></h2>
        <button type="button" onClick={() => aim({ to: null, after: null, suffix: (found ?? answer).suffix })}>Rewind to the start …</button>
      </div>
      {(error ?? refused) && <Trouble text={(error ?? refused)!} />}
      {newer && <button type="button" class="first fresh" onClick={release}>{counted(found!.commits.at(-1)!.batch - answer.commits.at(-1)!.batch, "newer batch", "newer batches")}: show</button>}
      <div class="scroll" tabIndex={0} role="region" aria-label="commits"><table>
        <thead><tr><th scope="col" class="number">batch</th><th scope="col">at</th><th scope="col">lane</th><th scope="col">where</th><th scope="col" class="number">rows</th><th scope="col" class="number">written</th><th scope="col" class="number">late</th><th scope="col" class="number">dead</th><th scope="col">watermark</th><th scope="col" class="number">took</th><th scope="col"><span class="hidden-words">rewind</span></th></tr></thead>
        <tbody>{all.map((commit, i) => <Row key={commit.batch} commit={commit} newest={i === 0} choose={() => choose(i)} />)}</tbody>
      </table></div>
      {earlier !== null && <button type="button" onClick={back}>Earlier commits</button>}
      {target && <Rewind job={job} target={target} close={(done) => { aim(null); if (done) { add([]); release(); again(); } }} />}
    </section>
  );
}

/** Newest first, without duplicates. */
function joined(page: Commit[], others: Commit[]): Commit[] {
  const each = new Map([...others, ...page].map((commit) => [commit.batch, commit]));
  return [...each.values()].sort((a, b) => b.batch - a.batch);
}

function slowest(commit: Commit): string {
  const known = Object.values(commit.watermarks);
  if (commit.finished) return "the end";
  return !known.length || known.includes(null) ? NONE : clock([...(known as string[])].sort()[0]!);
}

function Row({ commit, newest, choose }: { commit: Commit; newest: boolean; choose: () => void }) {
  const written = Object.values(commit.outputs).reduce((sum, rows) => sum + rows, 0);
  return (
    <tr data-batch={commit.batch}>
      <th scope="row" class="number">{commit.batch}</th>
      <td>{commit.at ? clock(commit.at) : NONE}</td><td>{commit.lane}</td><td>{commit.where}</td>
      <td class="number">{count(commit.rows)}</td><td class="number">{count(written)}</td><td class="number">{count(commit.late)}</td><td class="number">{count(commit.dead)}</td>
      <td>{slowest(commit)}</td><td class="number">{seconds(commit.seconds)}</td>
      <td>{newest ? <span class="quiet">current</span> : commit.reachable
        ? <button type="button" class="plain" onClick={choose} aria-label={`Rewind from batch ${commit.batch}`}>Rewind from here …</button>
        : <span class="quiet" title="its state has been deleted, or it was undone by a rewind">unavailable</span>}</td>
    </tr>
  );
}
