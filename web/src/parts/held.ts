// A list that stands still while somebody reads it: what is newer waits until it is asked for.

import { useEffect, useState } from "preact/hooks";

export interface Held<T> { shown: T | null; newer: boolean; release: () => void }

/** The first answer to one question (`of`), until it is released; `mark` names the newest thing in an answer. */
export function useHeld<T>(answer: T | null, of: string, mark: (answer: T) => string): Held<T> {
  const [held, hold] = useState<{ of: string; answer: T } | null>(null);
  useEffect(() => {
    if (answer !== null && (held === null || held.of !== of || mark(held.answer) === mark(answer))) hold({ of, answer });
  }, [answer, of]);
  const shown = held?.of === of ? held.answer : answer;
  return {
    shown, newer: shown !== null && answer !== null && mark(shown) !== mark(answer),
    release: () => { if (answer !== null) hold({ of, answer }); },
  };
}
