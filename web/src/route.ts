// The current view, stored in the address after the #, so that links and the back button work.

import { useEffect, useState } from "preact/hooks";

export interface Route { section: string; name: string | null; tab: string; query: URLSearchParams }

export function parsed(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2) as [string, string?];
  const [section = "", name, tab = ""] = path.split("/").map(plain);
  return { section: section || "jobs", name: name || null, tab, query: new URLSearchParams(query) };
}

function plain(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function address(section: string, name?: string, tab?: string, query?: Record<string, string>): string {
  const path = [section, name, tab].filter((part) => part !== undefined && part !== "").map((part) => encodeURIComponent(part!)).join("/");
  const asked = new URLSearchParams(Object.entries(query ?? {}).filter(([, value]) => value !== "")).toString();
  return `#/${path}${asked && `?${asked}`}`;
}

export function useRoute(onMove: () => void): Route {
  const [route, set] = useState(parsed(location.hash));
  useEffect(() => {
    const listener = () => { onMove(); set(parsed(location.hash)); };
    addEventListener("hashchange", listener);
    return () => removeEventListener("hashchange", listener);
  }, []);
  return route;
}
