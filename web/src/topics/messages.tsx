// The message browser: start position, partition, filter; follow, pause, page.

import { useEffect, useRef, useState } from "preact/hooks";
import { count, counted } from "../format";
import { ask, errorText, useAsked } from "../live";
import { Empty, Trouble, Wait } from "../parts/facts";
import { Icon } from "../parts/icon";
import { RecordLine, placeOf } from "../parts/record";
import { address } from "../route";
import type { Lost, RecordsPage, StoredRecord } from "../types";
import { KEPT, useFollowing } from "./following";

const FORMATS = ["auto", "json", "text", "hex"];
const PLACES: [at: string, words: string][] = [["end", "the newest"], ["beginning", "the beginning"], ["-10m", "ten minutes ago"], ["-1h", "an hour ago"], ["-1d", "a day ago"]];
const OTHER = "other";

interface Wish { at: string; partition: string; where: string; format: string }

const wished = (query: URLSearchParams): Wish => ({
  at: query.get("at") ?? "end", partition: query.get("partition") ?? "", where: query.get("where") ?? "", format: query.get("format") ?? "auto",
});

const asQuery = (wish: Partial<Wish>): string =>
  new URLSearchParams(Object.entries(wish).filter(([name, value]) => value !== "" && !(name === "format" && value === "auto"))).toString();

export function Messages({ topic, partitions, query }: { topic: string; partitions: number; query: URLSearchParams }) {
  const wish = wished(query);
  const go = (next: Wish) => {
    location.hash = address("topics", topic, "", { ...next, at: next.at === "end" ? "" : next.at, format: next.format === "auto" ? "" : next.format });
  };
  return (
    <section class="card" aria-labelledby="messages">
      <h2 id="messages" class="hidden-words">Messages</h2>
      <Controls key={asQuery(wish)} wish={wish} partitions={partitions} go={go} />
      {wish.at === "end" ? <Newest topic={topic} wish={wish} /> : <Forward topic={topic} wish={wish} />}
    </section>
  );
}

function Controls({ wish, partitions, go }: { wish: Wish; partitions: number; go: (wish: Wish) => void }) {
  const [at, begin] = useState(PLACES.some(([place]) => place === wish.at) ? wish.at : OTHER);
  const [other, jump] = useState(PLACES.some(([place]) => place === wish.at) ? "" : wish.at);
  const [where, write] = useState(wish.where);
  const look = (changed: Partial<Wish>) => go({ ...wish, where, at: at === OTHER ? other || "end" : at, ...changed });
  return (
    <form class="form" onSubmit={(event) => { event.preventDefault(); look({}); }}>
      <label class="field">from<select value={at} onChange={({ currentTarget: { value } }) => { begin(value); if (value !== OTHER) look({ at: value }); }}>
        {PLACES.map(([place, words]) => <option key={place} value={place}>{words}</option>)}<option value={OTHER}>a time or an offset …</option>
      </select></label>
      {at === OTHER && <label class="field">2026-01-01T12:00 (UTC), -90s or @1200<input value={other} onInput={(event) => jump(event.currentTarget.value)} spellcheck={false} autocomplete="off" autofocus /></label>}
      <label class="field">partition<select value={wish.partition} onChange={(event) => look({ partition: event.currentTarget.value })}>
        <option value="">all</option>{Array.from({ length: Math.max(partitions, Number(wish.partition || -1) + 1) }, (_, i) => <option key={i} value={String(i)}>{i}</option>)}
      </select></label>
      <label class="field">format<select value={wish.format} onChange={(event) => look({ format: event.currentTarget.value })}>{FORMATS.map((format) => <option key={format}>{format}</option>)}</select></label>
      <label class="field grow">where<input value={where} onInput={(event) => write(event.currentTarget.value)} placeholder="price > 10 and _key like 'user-%'" spellcheck={false} autocomplete="off" /></label>
      <button type="submit" class="first">Search</button>
    </form>
  );
}

/** The newest records; while following, new ones are added on top. */
function Newest({ topic, wish }: { topic: string; wish: Wish }) {
  const [on, turn] = useState(true);
  const query = asQuery({ partition: wish.partition, where: wish.where, format: wish.format });
  const { answer, error } = useAsked<RecordsPage>(`/api/topics/${encodeURIComponent(topic)}/records?${query}${query && "&"}at=end`, 0);
  const top = useRef<HTMLDivElement>(null);
  const seen = useRef(true), open = useRef(0);
  useEffect(() => {
    const watching = new IntersectionObserver(([entry]) => { seen.current = entry!.isIntersecting; });
    if (top.current) watching.observe(top.current);
    return () => watching.disconnect();
  }, [answer === null]);
  const following = useFollowing(topic, query, on && answer !== null, answer, () => !seen.current || open.current > 0);
  const [older, setOlder] = useState<Older>({ records: [], earlier: null, scanned: 0, refused: null, lost: [] });
  useEffect(() => setOlder({ records: [], earlier: answer?.earlier ?? null, scanned: 0, refused: null, lost: [] }), [answer]);
  if (answer === null) return error ? <Trouble text={error} /> : <Wait />;
  const opened = (by: number) => { open.current += by; };
  const shown = new Set(following.records.map(placeOf));
  return (
    <>
      <div class="titled row spread">
        <span class="quiet" role="status">{following.ended ?? (on ? "following: new records appear on top" : "paused")}</span>
        <button type="button" aria-pressed={!on} onClick={() => turn(!on)}><Icon name={on ? "pause" : "play"} />{on ? "Pause" : "Follow"}</button>
      </div>
      <div ref={top} />
      <LostBatches lost={[...answer.lost, ...following.lost, ...older.lost]} />
      {following.waiting > 0 && <button type="button" class="first fresh" onClick={() => { following.release(); top.current?.scrollIntoView({ block: "center" }); }}>{counted(following.waiting, "new record")}: show</button>}
      {following.records.length || older.records.length
        ? <ul class="records">{[...following.records, ...older.records.filter((record) => !shown.has(placeOf(record)))].map((record) => <RecordLine key={placeOf(record)} record={record} opened={opened} />)}</ul>
        : <Empty title="No records">{wish.where && <p>None of {count(answer.scanned)} records matched{answer.unknown > 0 && `; ${count(answer.unknown)} do not have the field`}.</p>}</Empty>}
      {following.records.length >= KEPT && <p class="quiet">While following, only the newest {KEPT} records are kept here; to see older ones, search from a time.</p>}
      {following.missed > 0 && <p class="quiet">{count(following.missed)} more records arrived than can be shown.</p>}
      {older.refused && <Trouble text={older.refused} />}
      <div class="row">
        {older.earlier !== null && <button type="button" onClick={() => void earlier(topic, query, older, setOlder)}>Earlier records</button>}
        {!answer.complete && older.earlier !== null && <span class="quiet">Searched {count(answer.scanned + older.scanned)} records; there are more.</span>}
      </div>
    </>
  );
}

interface Older { records: StoredRecord[]; earlier: string | null; scanned: number; refused: string | null; lost: Lost[] }

async function earlier(topic: string, query: string, older: Older, set: (older: Older) => void): Promise<void> {
  try {
    const page = await ask<RecordsPage>(`/api/topics/${encodeURIComponent(topic)}/records?${query}${query && "&"}before=${encodeURIComponent(older.earlier!)}`);
    set({ records: [...older.records, ...[...page.records].reverse()], earlier: page.earlier, scanned: older.scanned + page.scanned, refused: null, lost: [...older.lost, ...page.lost] });
  } catch (error) {
    set({ ...older, refused: errorText(error) });
  }
}

/** From a position on, oldest first, page by page. */
function Forward({ topic, wish }: { topic: string; wish: Wish }) {
  const [from, go] = useState<string | null>(null);
  const { at, ...rest } = wish;
  const query = asQuery(rest);
  useEffect(() => go(null), [asQuery(wish)]);
  const place = from === null ? `at=${encodeURIComponent(at)}` : `from=${encodeURIComponent(from)}`;
  const { answer, error } = useAsked<RecordsPage>(`/api/topics/${encodeURIComponent(topic)}/records?${query}${query && "&"}${place}`, 0);
  if (answer === null) return error ? <Trouble text={error} /> : <Wait />;
  return (
    <>
      <LostBatches lost={answer.lost} />
      {answer.gone > 0 && <Trouble warn text={`${counted(answer.gone, "record")} from there on have been deleted; the list starts at the next record that exists.`} />}
      {answer.records.length ? <ul class="records">{answer.records.map((record) => <RecordLine key={placeOf(record)} record={record} />)}</ul> : <Empty title="No records from there on" />}
      {!answer.complete && <p class="quiet">Searched {count(answer.scanned)} records; there are more.</p>}
      <div class="row">
        {from !== null && <button type="button" onClick={() => go(null)}>Back to the first page</button>}
        {answer.later !== null && <button type="button" onClick={() => go(answer.later)}>Later records</button>}
      </div>
    </>
  );
}

const LOST_SHOWN = 10;

/** Damaged batches of the log, without duplicates: their offsets and the reason. */
function LostBatches({ lost }: { lost: Lost[] }) {
  const each = [...new Map(lost.map((one) => [`${one.partition}@${one.first}`, one])).values()];
  return (
    <>
      {each.slice(0, LOST_SHOWN).map((one) => <Trouble key={`${one.partition}@${one.first}`} warn text={`Partition ${one.partition}: ${one.next - one.first > 1 ? `offsets ${one.first} to ${one.next - 1}` : `offset ${one.first}`} cannot be read: the batch ${one.why}.`} />)}
      {each.length > LOST_SHOWN && <p class="quiet">{count(each.length - LOST_SHOWN)} more batches cannot be read.</p>}
    </>
  );
}
