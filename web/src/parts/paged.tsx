// Pages of a log, newest rows first. Newer rows are shown on request, so that the list does not move.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { count } from "../format";
import { useAsked } from "../live";
import { Trouble, Wait } from "./facts";
import { useHeld } from "./held";

export interface Page { scanned: number; complete: boolean; earlier: string | null; later: string | null }

const EVERY = 4;

interface Props<P extends Page> {
  path: string; query: Record<string, string>; rows: (page: P) => number; mark: (page: P) => string; none: (page: P) => ComponentChildren;
  children: (page: P) => ComponentChildren; onPage?: (page: P) => void;
}

export function Paged<P extends Page>({ path, query, rows, mark, none, children, onPage }: Props<P>) {
  const [place, go] = useState<Record<string, string>>({});
  const asked = new URLSearchParams(Object.entries({ ...query, ...place }).filter(([, value]) => value !== "")).toString();
  const wish = JSON.stringify(query);
  useEffect(() => go({}), [wish]);
  const newest = place.before === undefined && place.from === undefined;
  const { answer: found, error } = useAsked<P>(asked ? `${path}?${asked}` : path, newest ? EVERY : 0);
  const { shown: answer, newer, release } = useHeld(found, `${path}?${asked}`, mark);
  useEffect(() => { if (answer) onPage?.(answer); }, [answer]);
  if (answer === null) return error ? <Trouble text={error} /> : <Wait />;
  return (
    <>
      {error && <Trouble text={error} />}
      {newer && <button type="button" class="first fresh" onClick={release}>Show newer rows</button>}
      {rows(answer) ? children(answer) : none(answer)}
      {!answer.complete && <p class="quiet">Searched {count(answer.scanned)} records; there are more.</p>}
      <div class="row">
        {!newest && <button type="button" onClick={() => go({})}>Newest</button>}
        {answer.earlier !== null && <button type="button" onClick={() => go({ before: answer.earlier! })}>Earlier</button>}
      </div>
    </>
  );
}
