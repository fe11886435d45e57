// Dark, light, or the system's setting. Charts listen for changes, since a canvas has no style sheet.

import { useEffect, useState } from "preact/hooks";
import { Icon } from "./parts/icon";

export type Theme = "system" | "light" | "dark";

const KEY = "millstream theme";
const listeners = new Set<() => void>();

const chosen = (): Theme => {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : "system";
};

export function applyTheme(theme: Theme = chosen()): void {
  if (theme === "system") {
    localStorage.removeItem(KEY);
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem(KEY, theme);
    document.documentElement.dataset.theme = theme;
  }
  for (const listener of listeners) listener();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => listeners.forEach((listener) => listener()));

/** A number that changes with the theme. */
export function useTheme(): number {
  const [turn, next] = useState(0);
  useEffect(() => {
    const listener = () => next((n) => n + 1);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return turn;
}

const WORDS: Record<Theme, string> = { light: "Light", system: "System", dark: "Dark" };

export function Themes() {
  useTheme();
  return (
    <div class="themes" role="group" aria-label="Colours">
      {(["light", "system", "dark"] as const).map((theme) => (
        <button key={theme} type="button" aria-pressed={chosen() === theme} aria-label={WORDS[theme]} title={WORDS[theme]} onClick={() => applyTheme(theme)}>
          <Icon name={theme} />
        </button>
      ))}
    </div>
  );
}
