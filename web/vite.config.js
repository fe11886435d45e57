import { defineConfig } from "vite";

export default defineConfig({
  base: "/",
  build: { outDir: "dist", assetsInlineLimit: 0, target: "es2023", cssTarget: ["chrome123", "firefox120", "safari17.5"], sourcemap: false },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
});
