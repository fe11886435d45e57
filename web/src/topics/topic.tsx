// One topic: its messages, its partitions, its settings.

import { count, counted } from "../format";
import { useAsked } from "../live";
import { Tabs, Tile, Tiles, Trouble } from "../parts/facts";
import { address } from "../route";
import type { TopicDetail } from "../types";
import { Messages } from "./messages";
import { JobLinks } from "./topics";

const EVERY = 3;

export function Topic({ name, tab, query }: { name: string; tab: string; query: URLSearchParams }) {
  const { answer, error } = useAsked<TopicDetail>(`/api/topics/${encodeURIComponent(name)}`, EVERY);
  const tabs = [["", "Messages"], ["partitions", "Partitions"], ["settings", "Settings"]] as const;
  return (
    <>
      <header class="head" data-topic={name}>
        <div>
          <a class="crumb" href={address("topics")}>Topics /</a>
          <h1>{name}{answer?.compacted && <span class="tag">compacted</span>}</h1>
          {answer && <p class="quiet">{answer.written_by.length > 0 && <>written by <JobLinks jobs={answer.written_by} /></>}{answer.written_by.length > 0 && answer.read_by.length > 0 && " · "}{answer.read_by.length > 0 && <>read by <JobLinks jobs={answer.read_by} /></>}</p>}
        </div>
      </header>
      {error && <Trouble text={error} />}
      {answer && <Figures topic={answer} />}
      <Tabs label={`views of ${name}`} here={tab} tabs={tabs.map(([to, words]) => ({ tab: to, words, href: address("topics", name, to) }))} />
      {tab === "" && <Messages key={name} topic={name} partitions={answer?.partitions ?? 0} query={query} />}
      {tab === "partitions" && answer && <Partitions topic={answer} />}
      {tab === "settings" && answer && <Settings topic={answer} />}
    </>
  );
}

function Figures({ topic }: { topic: TopicDetail }) {
  const short = topic.parts.filter((part) => part.isr.length < part.replicas.length).length;
  const open = topic.parts.filter((part) => (part.stable ?? 0) < (part.latest ?? 0)).length;
  return (
    <Tiles label="summary of the topic">
      <Tile label="records" value={count(topic.offsets_held)} fact="records" note="offsets held" />
      <Tile label="partitions" value={count(topic.partitions)} note={counted(topic.replicas, "replica")} />
      <Tile label="written so far" value={count(topic.parts.reduce((sum, part) => sum + (part.latest ?? 0), 0))} fact="end" note="sum of the ends" />
      <Tile label="out of sync" value={count(short)} tone={short ? "bad" : ""} note="partitions" />
      <Tile label="open transactions" value={count(open)} note="partitions with at least one" />
    </Tiles>
  );
}

function Partitions({ topic }: { topic: TopicDetail }) {
  return (
    <section class="card"><h2>Partitions</h2><div class="scroll" tabIndex={0} role="region" aria-label="partitions"><table>
      <thead><tr><th scope="col" class="number">partition</th><th scope="col" class="number">first</th><th scope="col" class="number">end</th><th scope="col" class="number">committed to</th><th scope="col" class="number">records</th><th scope="col" class="number">leader</th><th scope="col">replicas</th><th scope="col">in sync</th></tr></thead>
      <tbody>{topic.parts.map((part) => (
        <tr key={part.partition}>
          <th scope="row" class="number"><a href={address("topics", topic.topic, "", { partition: String(part.partition) })}>{part.partition}</a></th>
          <td class="number">{count(part.earliest)}</td><td class="number">{count(part.latest)}</td><td class="number">{count(part.stable)}</td><td class="number">{count(part.latest === null || part.earliest === null ? null : part.latest - part.earliest)}</td>
          <td class="number">{part.leader ?? <span class="bad">none</span>}</td><td>{part.replicas.join(", ")}</td><td class={part.isr.length < part.replicas.length ? "bad" : ""}>{part.isr.join(", ")}</td>
        </tr>
      ))}</tbody>
    </table></div></section>
  );
}

function Settings({ topic }: { topic: TopicDetail }) {
  const all = Object.entries(topic.settings).sort(([a], [b]) => a.localeCompare(b));
  return (
    <section class="card"><h2>Settings <span class="quiet">set on the topic</span></h2>
      {all.length ? <div class="scroll" tabIndex={0} role="region" aria-label="settings"><table>
        <thead><tr><th scope="col">setting</th><th scope="col">value</th></tr></thead>
        <tbody>{all.map(([name, value]) => <tr key={name}><th scope="row" class="mono">{name}</th><td class="mono long">{value}</td></tr>)}</tbody>
      </table></div> : <p class="quiet">All settings have the cluster's defaults.</p>}
    </section>
  );
}
