// The way to the server: the token, plain calls, and events over fetch (an EventSource sends no token).

const KEY = "millstream token";

export function token(): string | null {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    localStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname + "#/");
  }
  return localStorage.getItem(KEY);
}

export function forgetToken(): void {
  localStorage.removeItem(KEY);
}

const headers = (): HeadersInit => ({ Authorization: `Bearer ${localStorage.getItem(KEY) ?? ""}` });

export async function ask(method: "POST" | "DELETE", path: string): Promise<void> {
  const answer = await fetch(path, { method, headers: headers() });
  if (!answer.ok) throw new Error(await sentence(answer));
}

async function sentence(answer: Response): Promise<string> {
  try {
    return ((await answer.json()) as { error: string }).error;
  } catch {
    return `the server answered ${answer.status}`;
  }
}

export type Link = "live" | "connecting" | "refused" | "gone";

/** Watches a stream of pictures until the returned function is called; comes back after a break. */
export function watch<T>(path: string, show: (picture: T) => void, link: (state: Link) => void): () => void {
  const ending = new AbortController();
  let pause = 500;
  const connect = async (): Promise<void> => {
    while (!ending.signal.aborted) {
      try {
        const answer = await fetch(path, { headers: headers(), signal: ending.signal });
        if (answer.status === 401 || answer.status === 404) {
          link(answer.status === 401 ? "refused" : "gone");
          return;
        }
        if (!answer.ok || !answer.body) throw new Error(await sentence(answer));
        link("live");
        pause = 500;
        await read(answer.body, show);
      } catch (error) {
        if (ending.signal.aborted) return;
        console.warn(error);
      }
      link("connecting");
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(pause * 2, 8000);
    }
  };
  void connect();
  return () => ending.abort();
}

async function read<T>(body: ReadableStream<Uint8Array>, show: (picture: T) => void): Promise<void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    let end: number;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const event = text.slice(0, end);
      text = text.slice(end + 2);
      if (event.startsWith("data: ")) show(JSON.parse(event.slice(6)) as T);
    }
  }
}
