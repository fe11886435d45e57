// The state of the connection to the server, shared by the whole page.

import { useEffect, useState } from "preact/hooks";

export interface Connection {
  link: "connecting" | "live" | "lost";
  /** The server's error message; null when it did not answer. */
  sentence: string | null;
  /** Whether the page has no valid token. */
  refused: boolean;
}

const KEY = "millstream token";
const listeners = new Set<() => void>();
let now: Connection = { link: "connecting", sentence: null, refused: false };

function update(next: Partial<Connection>): void {
  const after = { ...now, ...next };
  if (after.link === now.link && after.sentence === now.sentence && after.refused === now.refused) return;
  now = after;
  for (const listener of listeners) listener();
}

export const answered = (): void => update({ link: "live", sentence: null, refused: false });
export const lost = (sentence: string | null): void => update({ link: "lost", sentence });

/** Forgets a rejected token; the page then explains how to get one. */
export function refuse(): void {
  localStorage.removeItem(KEY);
  update({ refused: true });
}

/** Moves the token from the address to local storage, so that history, screenshots and copied links do not contain it. */
export function takeToken(): void {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    localStorage.setItem(KEY, given);
    history.replaceState(null, "", `${location.pathname}#/jobs`);
  }
  update({ refused: localStorage.getItem(KEY) === null });
}

export const bearer = (): Record<string, string> => ({ Authorization: `Bearer ${localStorage.getItem(KEY) ?? ""}` });

export function useConnection(): Connection {
  const [shown, show] = useState(now);
  useEffect(() => {
    const listener = () => show(now);
    listeners.add(listener);
    listener();
    return () => void listeners.delete(listener);
  }, []);
  return shown;
}
