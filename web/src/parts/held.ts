// Keeps a list unchanged while it is read; newer data is shown on request.

import { useEffect, useState } from "preact/hooks";

export interface Held<T> { shown: T | null; newer: boolean; release: () => void }

/** The first answer for the query `of`, until it is released; `mark` identifies the newest item of an answer. */
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
