// Following a topic: new records are added on top, or held until released while the reader looks at older ones.
//
// Records written before the stream started, or while it was disconnected, are fetched afterwards, so there is no gap.

import { useEffect, useRef, useState } from "preact/hooks";
import { ask, follow } from "../live";
import { placeOf } from "../parts/record";
import type { Followed, Lost, RecordsPage, StoredRecord } from "../types";

/** How many records are kept while following. */
export const KEPT = 200;
const CATCH_UP_PAGES = 4;

export interface Following {
  records: StoredRecord[]; waiting: number; missed: number; ended: string | null; lost: Lost[];
  release: () => void;
}

/** Newest first, without duplicates, at most `KEPT`. */
function joined(some: StoredRecord[], others: StoredRecord[]): StoredRecord[] {
  const each = new Map([...others, ...some].map((record) => [placeOf(record), record]));
  return [...each.values()].sort((a, b) => b.timestamp.localeCompare(a.timestamp) || b.offset - a.offset).slice(0, KEPT);
}

/** Follows while `on`; while `held` returns true, new records wait. After a reconnect, the records in between are fetched. */
export function useFollowing(topic: string, query: string, on: boolean, begin: RecordsPage | null, held: () => boolean): Following {
  const [shown, show] = useState<StoredRecord[]>([]);
  const [waiting, wait] = useState<StoredRecord[]>([]);
  const [status, setStatus] = useState({ missed: 0, ended: null as string | null, lost: [] as Lost[] });
  const later = useRef<string | null>(null);
  const seen = useRef<StoredRecord[]>([]);
  seen.current = shown;
  const path = `/api/topics/${encodeURIComponent(topic)}`;
  useEffect(() => {
    show(begin ? joined(begin.records, []) : []);
    wait([]);
    setStatus({ missed: 0, ended: null, lost: [] });
    later.current = begin?.later ?? null;
  }, [begin]);
  useEffect(() => {
    if (!on) return;
    const ending = new AbortController();
    const take = (records: StoredRecord[]) => {
      const known = new Set(seen.current.map(placeOf));
      if (held()) wait((before) => joined(records.filter((record) => !known.has(placeOf(record))), before));
      else show((before) => joined(records, before));
    };
    const end = (sentence: string) => setStatus((before) => ({ ...before, ended: sentence }));
    const lose = (lost: Lost[]) => { if (lost.length) setStatus((before) => ({ ...before, lost: [...before.lost, ...lost] })); };
    const catchUp = async () => {
      let place = later.current;
      for (let page = 0; page < CATCH_UP_PAGES; page++) {
        const from = place === null ? "at=end" : `from=${encodeURIComponent(place)}`;
        const found = await ask<RecordsPage>(`${path}/records?${query}${query && "&"}${from}`, ending.signal);
        take(found.records);
        lose(found.lost);
        if (found.later === null) return;
        place = found.later;
      }
      if (place !== null) end("more records arrived while disconnected than are shown; search from an earlier time to see them");
    };
    setStatus((before) => ({ ...before, ended: null }));
    void follow(`${path}/follow${query && `?${query}`}`, ({ name, data }) => {
      if (name !== "message") { end(String(data)); return true; }
      const received = data as Followed;
      take(received.records);
      lose(received.lost);
      later.current = received.later;
      setStatus((before) => ({ ...before, missed: before.missed + received.left_out + received.skipped }));
      return false;
    }, end, ending.signal, () => void catchUp().catch(() => {
      if (!ending.signal.aborted) end("some records may be missing; reload");
    }));
    return () => ending.abort();
  }, [topic, query, on]);
  return {
    ...status, records: shown, waiting: waiting.length,
    release: () => { show((before) => joined(waiting, before)); wait([]); },
  };
}
