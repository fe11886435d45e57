// Every topic of the cluster, with the jobs that read and write it.

import { useState } from "preact/hooks";
import { compact, count } from "../format";
import { useAsked } from "../live";
import { Empty, Trouble, Wait } from "../parts/facts";
import { address } from "../route";
import type { TopicFacts } from "../types";

const EVERY = 5;

export function Topics() {
  const [internal, include] = useState(false);
  const [word, write] = useState("");
  const { answer, error } = useAsked<TopicFacts[]>(`/api/topics?internal=${internal}`, EVERY);
  const shown = answer?.filter((topic) => topic.topic.toLowerCase().includes(word.toLowerCase()));
  return (
    <>
      <header class="head">
        <div><h1>Topics</h1><p class="quiet">{answer ? `${count(answer.length)} topics, ${compact(answer.reduce((sum, topic) => sum + topic.offsets_held, 0))} records` : "topics of the cluster"}</p></div>
        <div class="form">
          <label class="field">name contains<input type="search" value={word} onInput={(event) => write(event.currentTarget.value)} spellcheck={false} /></label>
          <label class="row quiet"><input type="checkbox" checked={internal} onChange={(event) => include(event.currentTarget.checked)} />include internal topics</label>
        </div>
      </header>
      {error && <Trouble text={error} />}
      {!shown ? (!error && <Wait />) : shown.length ? <Table topics={shown} /> : <Empty title={word ? "No topic name contains this" : "No topics yet"} />}
    </>
  );
}

function Table({ topics }: { topics: TopicFacts[] }) {
  return (
    <section class="card"><div class="scroll" tabIndex={0} role="region" aria-label="topics"><table>
      <thead><tr><th scope="col">topic</th><th scope="col" class="number">records</th><th scope="col" class="number">partitions</th><th scope="col" class="number">replicas</th><th scope="col">written by</th><th scope="col">read by</th></tr></thead>
      <tbody>{topics.map((topic) => (
        <tr key={topic.topic} data-topic={topic.topic}>
          <th scope="row"><a href={address("topics", topic.topic)}>{topic.topic}</a>{topic.compacted && <> <span class="tag">compacted</span></>}{topic.internal && <> <span class="tag">internal</span></>}</th>
          <td class="number" data-fact="records">{count(topic.offsets_held)}</td><td class="number">{count(topic.partitions)}</td><td class="number">{count(topic.replicas)}</td>
          <td><JobLinks jobs={topic.written_by} /></td><td><JobLinks jobs={topic.read_by} /></td>
        </tr>
      ))}</tbody>
    </table></div></section>
  );
}

export function JobLinks({ jobs }: { jobs: string[] }) {
  return <>{jobs.map((job, i) => <span key={job}>{i > 0 && ", "}<a href={address("jobs", job)}>{job}</a></span>)}</>;
}
