// Pages of a log, from its newest rows backwards; newer ones are offered, and move nothing by themselves.

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
  children: (page: P) => ComponentChildren; heard?: (page: P) => void;
}

export function Paged<P extends Page>({ path, query, rows, mark, none, children, heard }: Props<P>) {
  const [place, go] = useState<Record<string, string>>({});
  const asked = new URLSearchParams(Object.entries({ ...query, ...place }).filter(([, value]) => value !== "")).toString();
  const wish = JSON.stringify(query);
  useEffect(() => go({}), [wish]);
  const newest = place.before === undefined && place.from === undefined;
  const { answer: found, error } = useAsked<P>(asked ? `${path}?${asked}` : path, newest ? EVERY : 0);
  const { shown: answer, newer, release } = useHeld(found, `${path}?${asked}`, mark);
  useEffect(() => { if (answer) heard?.(answer); }, [answer]);
  if (answer === null) return error ? <Trouble text={error} /> : <Wait />;
  return (
    <>
      {error && <Trouble text={error} />}
      {newer && <button type="button" class="first fresh" onClick={release}>There are newer ones: show</button>}
      {rows(answer) ? children(answer) : none(answer)}
      {!answer.complete && <p class="quiet">{count(answer.scanned)} records were looked at; there is more to look through.</p>}
      <div class="row">
        {!newest && <button type="button" onClick={() => go({})}>Newest</button>}
        {answer.earlier !== null && <button type="button" onClick={() => go({ before: answer.earlier! })}>Earlier</button>}
      </div>
    </>
  );
}
