// The icons of the page.

const PATHS = {
  jobs: "M3 12h3l2.5-6 4 12L15 12h6",
  topics: "M4 6h16M4 12h16M4 18h10",
  groups: "M9 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6M3 19c.6-3.4 2.8-5 6-5s5.4 1.6 6 5M16 5.5a3 3 0 0 1 0 5.4M17.5 14.3c2 .6 3.2 2.1 3.5 4.7",
  alerts: "M12 4a5 5 0 0 0-5 5c0 5-2 6-2 7h14c0-1-2-2-2-7a5 5 0 0 0-5-5M10 19.5a2 2 0 0 0 4 0",
  light: "M12 8.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7M12 3v1.5M12 19.5V21M3 12h1.5M19.5 12H21M5.6 5.6l1.1 1.1M17.3 17.3l1.1 1.1M5.6 18.4l1.1-1.1M17.3 6.7l1.1-1.1",
  system: "M4 5h16v11H4zM9 20h6M12 16v4",
  dark: "M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10",
  pause: "M8 5v14M16 5v14",
  play: "M7 5l11 7-11 7z",
  wide: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  narrow: "M9 4v5H4M15 4v5h5M9 20v-5H4M15 20v-5h5",
  down: "M6 9l6 6 6-6",
  right: "M9 6l6 6-6 6",
  quiet: "M4 4l16 16M8.5 5.5A5 5 0 0 1 17 9c0 2 .3 3.3.7 4.3M7 9c0 5-2 6-2 7h11M10 19.5a2 2 0 0 0 4 0",
} as const;

type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return <svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d={PATHS[name]} /></svg>;
}
