// Text that came from outside: shown as text and nothing else.
//
// Characters that move other characters or cannot be seen are spelled out, the direction of the text
// stays inside it, and what is long is cut until somebody asks for it.

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
    parts.push(plain, <span class="strange" title="a character that cannot be seen">{`U+${letter.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}`}</span>);
    plain = "";
  }
  return [...parts, plain];
}

/** A text from a record, a name from outside; at most `first` characters of it to begin with. */
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
      {text.length <= most && there > text.length && <span class="quiet"> … cut here, {count(there)} in all</span>}
    </>
  );
}

/** Not half of a pair of surrogates at the end. */
const whole = (text: string): string => (/[\ud800-\udbff]$/.test(text) ? text.slice(0, -1) : text);
