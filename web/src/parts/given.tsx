// Text from outside, shown as plain text.
//
// Invisible characters and those that change the text direction are spelled out, the direction is isolated,
// and long text is shortened until more is requested.

import { useState } from "preact/hooks";
import { count } from "../format";
import { isStrange } from "./visible";

const MORE = 20_000;

function spelled(text: string): preact.ComponentChildren[] {
  const parts: preact.ComponentChildren[] = [];
  let plain = "";
  for (const letter of text) {
    if (!isStrange(letter)) {
      plain += letter;
      continue;
    }
    parts.push(plain, <span class="strange" title="an invisible character">{`U+${letter.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}`}</span>);
    plain = "";
  }
  return [...parts, plain];
}

/** Text of a record, or a name from outside; at first no more than `first` characters. */
export function Given({ text, first = 400, size }: { text: string; first?: number; size?: number | undefined }) {
  const [most, show] = useState(first);
  const shown = text.length > most ? whole(text.slice(0, most)) : text;
  const there = Math.max(size ?? 0, text.length);
  return (
    <>
      <span class="given" dir="auto">{isStrange(shown) ? spelled(shown) : shown}</span>
      {text.length > most && (
        <button type="button" class="plain" onClick={() => show(most < MORE ? MORE : most * 2)}>
          show more <span class="quiet">({count(most)} of {count(there)})</span>
        </button>
      )}
      {text.length <= most && there > text.length && <span class="quiet"> … truncated, {count(there)} in total</span>}
    </>
  );
}

/** Without half a surrogate pair at the end. */
const whole = (text: string): string => (/[\ud800-\udbff]$/.test(text) ? text.slice(0, -1) : text);
