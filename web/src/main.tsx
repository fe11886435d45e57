import { render } from "preact";
import { App } from "./app";
import { takeToken } from "./connection";
import { keepVisible } from "./parts/visible";
import "./style/roles.css";
import "./style/frame.css";
import "./style/parts.css";
import "./style/jobs.css";
import "./style/records.css";
import { applyTheme } from "./theme";

keepVisible();
applyTheme();
takeToken();
render(<App />, document.getElementById("app")!);
