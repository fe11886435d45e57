// A JSON value as a tree; only expanded parts of wide and deep values are rendered.

import { useState } from "preact/hooks";
import { count } from "../format";
import type { Value } from "../types";
import { Given } from "./given";

const OPEN_DEPTH = 3, MEMBERS = 50, DEEPEST_INDENT = 12;

/** A number as text, where JavaScript would round it. */
export class Exact {
  constructor(readonly text: string) {}
}

export function Tree({ value }: { value: Value | Exact }) {
  return <div class="tree"><Node value={value} depth={0} /></div>;
}

function Node({ value, depth, name }: { value: Value | Exact; depth: number; name?: string }) {
  const [opened, open] = useState(depth < OPEN_DEPTH);
  const [most, show] = useState(MEMBERS);
  const label = name === undefined ? null : <><span class="name"><Given text={name} first={80} /></span>: </>;
  if (value instanceof Exact) return <div class="leaf">{label}<span class="number-text">{value.text}</span></div>;
  if (value === null || typeof value !== "object") return <div class="leaf">{label}<Leaf value={value} /></div>;
  const members: [string, Value][] = Array.isArray(value) ? value.map((one, i) => [String(i), one]) : Object.entries(value);
  const [left, right] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (!members.length) return <div class="leaf">{label}{left}{right}</div>;
  return (
    <div class="branch">
      <button type="button" class="twist" aria-expanded={opened} onClick={() => open(!opened)}>
        {label}{left}{!opened && <span class="quiet">{` ${count(members.length)} ${members.length === 1 ? "member" : "members"} `}{right}</span>}
      </button>
      {opened && (
        <div class={depth < DEEPEST_INDENT ? "inside" : ""}>
          {members.slice(0, most).map(([key, one]) => <Node key={key} name={key} value={one} depth={depth + 1} />)}
          {members.length > most && <button type="button" class="plain" onClick={() => show(most * 4)}>show more ({count(most)} of {count(members.length)})</button>}
        </div>
      )}
      {opened && <div class="leaf">{right}</div>}
    </div>
  );
}

function Leaf({ value }: { value: string | number | boolean | null }) {
  if (typeof value === "string") return <span class="string-text">"<Given text={value} />"</span>;
  return <span class={value === null ? "null" : `${typeof value}-text`}>{String(value)}</span>;
}
