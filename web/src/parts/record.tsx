// A record of a topic: one line that expands. Its content is never interpreted as markup.

import { useEffect, useState } from "preact/hooks";
import { bytes, clock, count } from "../format";
import { ask, errorText } from "../live";
import type { Body, StoredRecord, Value } from "../types";
import { Trouble } from "./facts";
import { Given } from "./given";
import { Icon } from "./icon";
import { Exact, Tree } from "./value";

const LINE = 180;

export const placeOf = (record: StoredRecord): string => `${record.partition}@${record.offset}`;

/** The value as a tree if it is complete JSON; numbers keep their original digits. */
function parsed(body: Body): { value: Value | Exact } | null {
  if (body.kind !== "json" || body.cut) return null;
  const exact = (_name: string, value: unknown, context?: { source?: string }): unknown =>
    typeof value === "number" && context?.source !== undefined && context.source !== String(value) ? new Exact(context.source) : value;
  try {
    return { value: JSON.parse(body.text, exact as (name: string, value: unknown) => unknown) as Value };
  } catch {
    return null;
  }
}

export function BodyLine({ body }: { body: Body }) {
  if (body.kind === "none") return <span class="quiet">null</span>;
  return <span class="given" dir="auto">{body.text.slice(0, LINE)}{(body.cut || body.text.length > LINE) && " …"}</span>;
}

function BodyWhole({ body }: { body: Body }) {
  const [tree, asTree] = useState(true);
  const found = parsed(body);
  if (body.kind === "none") return <p class="quiet">null: the record has no value</p>;
  return (
    <>
      {found && <div class="row"><button type="button" aria-pressed={tree} onClick={() => asTree(true)}>Tree</button><button type="button" aria-pressed={!tree} onClick={() => asTree(false)}>Text</button></div>}
      {found && tree ? <Tree value={found.value} /> : <div class="body mono"><Given text={body.text} first={4000} /></div>}
    </>
  );
}

/** A whole record; if it was truncated, it can be loaded in full. */
export function RecordWhole({ record }: { record: StoredRecord }) {
  const [full, show] = useState<StoredRecord | null>(null);
  const [refused, say] = useState<string | null>(null);
  const { key, value, headers, headers_total: total } = full ?? record;
  const load = async () => {
    try {
      show(await ask<StoredRecord>(`/api/topics/${encodeURIComponent(record.topic)}/records/${record.partition}/${record.offset}`));
      say(null);
    } catch (error) {
      say(errorText(error));
    }
  };
  return (
    <div class="record-whole">
      <dl class="words">
        <dt>position</dt><dd>{record.topic}, partition {record.partition}, offset {count(record.offset)}</dd>
        <dt>time</dt><dd><time dateTime={record.timestamp}>{record.timestamp}</time></dd>
        <dt>key</dt><dd class="mono">{key.kind === "none" ? <span class="quiet">null</span> : <Given text={key.text} first={400} />}</dd>
        {headers.map((header, i) => <HeaderLine key={i} name={header.name} value={header.value} />)}
        {total > headers.length && <><dt>headers</dt><dd class="quiet">{count(total - headers.length)} more are not shown</dd></>}
        <dt>value</dt><dd>{value.kind}, {bytes(value.size)}{value.cut && ", truncated"}</dd>
      </dl>
      {refused && <Trouble text={refused} />}
      <BodyWhole body={value} />
      {value.cut && !full && <button type="button" onClick={load}>Load more ({bytes(value.size)})</button>}
      {value.cut && full && <p class="quiet">Only the beginning is shown; <code>millstream tail {record.topic}</code> prints all of it.</p>}
    </div>
  );
}

const HeaderLine = ({ name, value }: { name: string; value: Body }) => (
  <><dt>header <Given text={name} first={80} /></dt><dd class="mono">{value.kind === "none" ? <span class="quiet">null</span> : <Given text={value.text} first={300} />}</dd></>
);

/** A line that expands. `opened` is called with 1 or -1, so that the list can stay still while a record is open. */
export function RecordLine({ record, opened }: { record: StoredRecord; opened?: (by: number) => void }) {
  const [open, set] = useState(false);
  useEffect(() => {
    if (!open) return;
    opened?.(1);
    return () => opened?.(-1);
  }, [open]);
  return (
    <li class="record" data-place={placeOf(record)}>
      <button type="button" class="record-line" aria-expanded={open} onClick={() => set(!open)}>
        <Icon name={open ? "down" : "right"} />
        <time dateTime={record.timestamp}>{clock(record.timestamp)}</time>
        <span class="quiet place">{record.partition}@{record.offset}</span>
        <span class="key mono"><BodyLine body={record.key} /></span>
        <span class="value-line mono"><BodyLine body={record.value} /></span>
        <span class="quiet size">{bytes(record.value.size)}</span>
      </button>
      {open && <RecordWhole record={record} />}
    </li>
  );
}
