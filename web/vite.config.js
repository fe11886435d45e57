import { defineConfig } from "vite";

export default defineConfig({
  base: "/",
  build: { outDir: "dist", assetsInlineLimit: 0, target: "es2023", sourcemap: false },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
});
