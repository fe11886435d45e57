// HTTP calls to the server, and server-sent events over fetch (an EventSource cannot send a token).

import { useCallback, useEffect, useState } from "preact/hooks";
import { answered, bearer, lost, refuse } from "./connection";

const SHORTEST = 500, LONGEST = 8000, SILENCE = 45_000;

/** The server rejected a request; the message is its explanation. */
export class Refusal extends Error {
  constructor(readonly status: number, sentence: string, readonly wait: number) {
    super(sentence);
  }
}

async function call(path: string, init: RequestInit): Promise<Response> {
  const answer = await fetch(path, { ...init, headers: { ...bearer(), ...init.headers } });
  if (answer.status < 500) answered();
  if (answer.ok) return answer;
  if (answer.status === 401) refuse();
  throw new Refusal(answer.status, await sentenceOf(answer), 1000 * Number(answer.headers.get("Retry-After") ?? 0));
}

async function sentenceOf(answer: Response): Promise<string> {
  try {
    return String(((await answer.json()) as { error: unknown }).error);
  } catch {
    return `the server answered ${answer.status}`;
  }
}

/** The message to show for a failed request. */
export const errorText = (error: unknown): string => (error instanceof Refusal ? error.message : "no response from the server");

/** Whether a retry may help: the server is unreachable or overloaded. */
const isTransient = (error: unknown): boolean => !(error instanceof Refusal) || error.status >= 500 || error.status === 429;

/** Sends a request that changes something. */
export async function send<T>(method: "POST" | "DELETE", path: string, body?: unknown): Promise<T> {
  const init: RequestInit = body === undefined ? { method } : { method, body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  return (await (await call(path, init)).json()) as T;
}

export async function ask<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await call(path, { signal: signal ?? null })).json()) as T;
}

export async function askText(path: string, signal?: AbortSignal): Promise<string> {
  return await (await call(path, { signal: signal ?? null })).text();
}

export interface Asked<T> { answer: T | null; error: string | null; again: () => void }

/** Polls a path every `every` seconds (0: once), and after a lost connection. */
export function useAsked<T>(path: string, every: number, how: (path: string, signal: AbortSignal) => Promise<T> = ask): Asked<T> {
  const [shown, show] = useState<{ path: string; answer: T | null; error: string | null }>({ path, answer: null, error: null });
  const [turn, next] = useState(0);
  useEffect(() => {
    const ending = new AbortController();
    void (async () => {
      for (let tries = 0; !ending.signal.aborted; ) {
        let pause = every * 1000;
        try {
          const answer = await how(path, ending.signal);
          if (ending.signal.aborted) return;
          show({ path, answer, error: null });
          tries = 0;
        } catch (error) {
          if (ending.signal.aborted) return;
          const sentence = error instanceof Refusal ? error.message : null;
          show((before) => ({ path, answer: before.path === path ? before.answer : null, error: sentence }));
          if (!isTransient(error) && !every) return;
          if (sentence === null) lost(null);
          pause = Math.max(pause, backoff(tries++), error instanceof Refusal ? error.wait : 0);
        }
        if (!pause) return;
        do await rest(pause, ending.signal); while (document.hidden && !ending.signal.aborted);
      }
    })();
    return () => ending.abort();
  }, [path, every, turn]);
  const again = useCallback(() => next((n) => n + 1), []);
  return shown.path === path ? { answer: shown.answer, error: shown.error, again } : { answer: null, error: null, again };
}

const backoff = (tries: number): number => Math.min(LONGEST, SHORTEST * 2 ** tries);

/** Waits for `pause` milliseconds, or until the browser is back online. */
function rest(pause: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const over = () => {
      clearTimeout(timer);
      removeEventListener("online", over);
      signal.removeEventListener("abort", over);
      done();
    };
    const timer = setTimeout(over, pause);
    addEventListener("online", over);
    signal.addEventListener("abort", over);
  });
}

export interface ServerEvent { name: string; data: unknown }

/** Reads server-sent events until `ending`, or until `onEvent` returns true. Reconnects with backoff; `onConnect` is
 * called at each connection. */
export async function follow(path: string, onEvent: (event: ServerEvent) => boolean, onGone: (sentence: string) => void, ending: AbortSignal, onConnect?: () => void): Promise<void> {
  for (let tries = 0; !ending.aborted; ) {
    let wait = 0;
    try {
      const answer = await call(path, { signal: ending });
      tries = 0;
      onConnect?.();
      if (await read(answer.body!, onEvent)) return;
      if (!ending.aborted) lost(null);
    } catch (error) {
      if (ending.aborted) return;
      if (!isTransient(error)) {
        if ((error as Refusal).status !== 401) onGone(errorText(error));
        return;
      }
      if (error instanceof Refusal) wait = error.wait;
      lost(error instanceof Refusal ? error.message : null);
    }
    await rest(Math.max(wait, backoff(tries++)), ending);
  }
}

/** Whether `onEvent` returned true before the stream ended. */
async function read(body: ReadableStream<Uint8Array>, onEvent: (event: ServerEvent) => boolean): Promise<boolean> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "", last = Date.now();
  const silent = setInterval(() => { if (Date.now() - last > SILENCE) void reader.cancel(); }, 5000);
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return false;
      last = Date.now();
      text += decoder.decode(value, { stream: true });
      for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
        const event = parsed(text.slice(0, end));
        text = text.slice(end + 2);
        if (event && onEvent(event)) return true;
      }
    }
  } finally {
    clearInterval(silent);
  }
}

function parsed(block: string): ServerEvent | null {
  let name = "message";
  const data: string[] = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  return data.length ? { name, data: JSON.parse(data.join("\n")) } : null;
}

/** The latest snapshot of a stream; `gone` is the reason why the stream ended. */
export function useWatched<T>(path: string): { snapshot: T | null; gone: string | null } {
  const [shown, show] = useState<{ path: string; snapshot: T | null; gone: string | null }>({ path, snapshot: null, gone: null });
  useEffect(() => {
    const ending = new AbortController();
    const end = (gone: string) => show((before) => ({ path, snapshot: before.snapshot, gone }));
    void follow(path, ({ name, data }) => {
      if (name === "gone") end(String(data));
      else show({ path, snapshot: data as T, gone: null });
      return name === "gone";
    }, end, ending.signal);
    return () => ending.abort();
  }, [path]);
  return shown.path === path ? shown : { snapshot: null, gone: null };
}
