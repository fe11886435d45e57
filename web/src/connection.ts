// How the connection to the server is: one answer for the whole page, and who wants to know it.

import { useEffect, useState } from "preact/hooks";

export interface Connection {
  link: "connecting" | "live" | "lost";
  /** What the server said when it answered but did not serve; null when it did not answer. */
  sentence: string | null;
  /** Whether the server wants a token that this page does not have. */
  refused: boolean;
}

const KEY = "millstream token";
const listeners = new Set<() => void>();
let now: Connection = { link: "connecting", sentence: null, refused: false };

function become(next: Partial<Connection>): void {
  const after = { ...now, ...next };
  if (after.link === now.link && after.sentence === now.sentence && after.refused === now.refused) return;
  now = after;
  for (const heard of listeners) heard();
}

export const answered = (): void => become({ link: "live", sentence: null, refused: false });
export const lost = (sentence: string | null): void => become({ link: "lost", sentence });

/** The token was refused, or there is none: it is forgotten, and the page says where to get it. */
export function refuse(): void {
  localStorage.removeItem(KEY);
  become({ refused: true });
}

/** Takes the token out of the address, so that no history, screenshot or copied link has it. */
export function takeToken(): void {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    localStorage.setItem(KEY, given);
    history.replaceState(null, "", `${location.pathname}#/jobs`);
  }
  become({ refused: localStorage.getItem(KEY) === null });
}

export const bearer = (): Record<string, string> => ({ Authorization: `Bearer ${localStorage.getItem(KEY) ?? ""}` });

export function useConnection(): Connection {
  const [shown, show] = useState(now);
  useEffect(() => {
    const heard = () => show(now);
    listeners.add(heard);
    heard();
    return () => void listeners.delete(heard);
  }, []);
  return shown;
}
