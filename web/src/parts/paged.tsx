// Pages of a log, from its newest rows backwards: asked for again while one looks at the newest.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { count } from "../format";
import { useAsked } from "../live";
import { Trouble, Wait } from "./facts";

export interface Page { scanned: number; complete: boolean; earlier: string | null; later: string | null }

const EVERY = 4;

interface Props<P extends Page> {
  path: string; query: Record<string, string>; rows: (page: P) => number; none: (page: P) => ComponentChildren;
  children: (page: P) => ComponentChildren; heard?: (page: P) => void;
}

export function Paged<P extends Page>({ path, query, rows, none, children, heard }: Props<P>) {
  const [place, go] = useState<Record<string, string>>({});
  const asked = new URLSearchParams(Object.entries({ ...query, ...place }).filter(([, value]) => value !== "")).toString();
  const wish = JSON.stringify(query);
  useEffect(() => go({}), [wish]);
  const newest = place.before === undefined && place.from === undefined;
  const { answer, error } = useAsked<P>(asked ? `${path}?${asked}` : path, newest ? EVERY : 0);
  useEffect(() => { if (answer) heard?.(answer); }, [answer]);
  if (answer === null) return error ? <Trouble text={error} /> : <Wait />;
  return (
    <>
      {error && <Trouble text={error} />}
      {rows(answer) ? children(answer) : none(answer)}
      {!answer.complete && <p class="quiet">{count(answer.scanned)} records were looked at; there is more to look through.</p>}
      <div class="row">
        {!newest && <button type="button" onClick={() => go({})}>Newest</button>}
        {answer.earlier !== null && <button type="button" onClick={() => go({ before: answer.earlier! })}>Earlier</button>}
      </div>
    </>
  );
}
