// Following a topic: what comes is added on top, unless the reader is looking elsewhere; then it waits.
//
// What came between looking and following, or during a break, is asked for once the following has begun: no gap.

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

/** Newest first, each once, no more than are kept. */
function joined(some: StoredRecord[], others: StoredRecord[]): StoredRecord[] {
  const each = new Map([...others, ...some].map((record) => [placeOf(record), record]));
  return [...each.values()].sort((a, b) => b.timestamp.localeCompare(a.timestamp) || b.offset - a.offset).slice(0, KEPT);
}

/** Follows while `on`; `held` says that the reader must not be disturbed. After a break it asks for what came meanwhile. */
export function useFollowing(topic: string, query: string, on: boolean, begin: RecordsPage | null, held: () => boolean): Following {
  const [shown, show] = useState<StoredRecord[]>([]);
  const [waiting, wait] = useState<StoredRecord[]>([]);
  const [told, tell] = useState({ missed: 0, ended: null as string | null, lost: [] as Lost[] });
  const later = useRef<string | null>(null);
  const seen = useRef<StoredRecord[]>([]);
  seen.current = shown;
  const path = `/api/topics/${encodeURIComponent(topic)}`;
  useEffect(() => {
    show(begin ? joined(begin.records, []) : []);
    wait([]);
    tell({ missed: 0, ended: null, lost: [] });
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
    const end = (sentence: string) => tell((before) => ({ ...before, ended: sentence }));
    const lose = (lost: Lost[]) => { if (lost.length) tell((before) => ({ ...before, lost: [...before.lost, ...lost] })); };
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
      if (place !== null) end("more came during the break than is shown; look from an earlier time to see all of it");
    };
    tell((before) => ({ ...before, ended: null }));
    void follow(`${path}/follow${query && `?${query}`}`, ({ name, data }) => {
      if (name !== "message") { end(String(data)); return true; }
      const came = data as Followed;
      take(came.records);
      lose(came.lost);
      later.current = came.later;
      tell((before) => ({ ...before, missed: before.missed + came.left_out + came.skipped }));
      return false;
    }, end, ending.signal, () => void catchUp().catch(() => {
      if (!ending.signal.aborted) end("some records may be missing: look again");
    }));
    return () => ending.abort();
  }, [topic, query, on]);
  return {
    ...told, records: shown, waiting: waiting.length,
    release: () => { show((before) => joined(waiting, before)); wait([]); },
  };
}
