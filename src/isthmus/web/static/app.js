// The page: login, navigation, and the view that the address names.
import { ask, duration, effect, html, render, sentence, signal, useEffect, useRef, useState } from "./lib.js";
import { about, forget, link, me, start, stop } from "./feed.js";
import { Staleness } from "./parts.js";
import { Confirmation, Toast } from "./actions.js";
import { Now } from "./views/now.js";
import { Queue } from "./views/queue.js";
import { Why } from "./views/why.js";
import { NodeView } from "./views/node.js";
import { People } from "./views/people.js";
import { History } from "./views/history.js";

const VIEWS = [["now", "Now"], ["queue", "Queue"], ["why", "Why"], ["people", "People"], ["history", "History"]];

function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { view: parts[0] || "now", path: path.split("/").filter(Boolean).slice(1), name: parts[1] || "", query: new URLSearchParams(query) };
}
const route = signal(read());
function arrive() {
  route.value = read();
  document.querySelector("main")?.scrollTo(0, 0);
}
addEventListener("hashchange", arrive);

/** Show a view before the next key: the browser's own word of it comes later, and keys in between would be lost. */
function show(path) {
  location.hash = path;
  arrive();
}

// Here and not in an effect of a view: those run after the view is on the screen, and a key pressed in between is lost.
addEventListener("keydown", (event) => {
  if (!me.value || /INPUT|TEXTAREA|SELECT/.test(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  const view = VIEWS[Number(event.key) - 1];
  if (view) show(`/${view[0]}`);
  if (event.key !== "/") return;
  event.preventDefault();
  const search = document.querySelector("main input[type=search]");
  if (search) search.focus();
  else show("/queue?search");
});

const theme = signal(localStorage.getItem("theme") || "");
effect(() => {
  if (theme.value) document.documentElement.dataset.theme = theme.value;
  else delete document.documentElement.dataset.theme;
  dispatchEvent(new Event("themechange"));
});
function turn() {
  const dark = theme.value ? theme.value === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  theme.value = dark ? "light" : "dark";
  localStorage.setItem("theme", theme.value);
}

function Freshness() {
  const told = about.value;
  const lost = link.value.state === "lost";
  const away = told && (!told.slurm.ok || !told.kubernetes.ok);
  const state = lost ? "bad" : !told ? "quiet" : away ? "wait" : "good";
  const text = lost ? "not connected" : !told ? "loading" : away ? `${told.slurm.ok ? "Kubernetes" : "Slurm"} is away` : "live";
  return html`<span class="fresh" title=${told?.slurm.age ? `Slurm answered ${duration(told.slurm.age)} ago` : ""}><i class=${`dot ${state}`}></i>${text}</span>`;
}

function Header() {
  const { view } = route.value;
  const at = view === "node" ? "now" : view;
  return html`<header class="top">
    <a class="brand" href="#/now"><img src="/static/icon.svg" alt="" width="22" height="22" /> <b>Isthmus</b> ${about.value?.name && html`<span class="dim">${about.value.name}</span>`}</a>
    <nav aria-label="Views">${VIEWS.map(([name, label]) => html`<a href=${`#/${name}`} aria-current=${at === name ? "page" : undefined}>${label}</a>`)}</nav>
    <${Freshness} />
    <button class="plain-button" onClick=${turn} aria-label="Light or dark" title="Light or dark">◐</button>
    ${me.value.login
      ? html`<span class="who" title=${me.value.slurmUser ? `in Slurm: ${me.value.slurmUser}` : "not a user of Slurm"}>${me.value.user.split(":").pop()}</span><button class="plain-button" onClick=${leave}>Log out</button>`
      : html`<span class="who dim">no login</span>`}
  </header>`;
}

async function leave() {
  stop();
  await ask("/api/logout", { body: {} }).catch(() => {});
  me.value = null;
}

/** What a login at a provider ended with, told once. */
const refused = new URLSearchParams(location.search).get("refused") || "";
if (refused) history.replaceState(null, "", `/${location.hash}`);

function Login() {
  const [failure, setFailure] = useState(refused);
  const [busy, setBusy] = useState(false);
  const [provider, setProvider] = useState("");
  useEffect(() => {
    ask("/api/logins")
      .then((found) => setProvider(found.provider))
      .catch(() => {});
  }, []);
  const field = useRef(null);
  const enter = async (event) => {
    event.preventDefault();
    setBusy(true);
    setFailure("");
    try {
      const found = await ask("/api/login", { body: { token: field.current.value } });
      forget();
      me.value = found;
    } catch (error) {
      setFailure(error.message);
    } finally {
      setBusy(false);
    }
  };
  return html`<main class="login">
    <form class="card" onSubmit=${enter}>
      <p class="brand"><img src="/static/icon.svg" alt="" width="28" height="28" /> <b>Isthmus</b></p>
      <h1>Log in</h1>
      ${provider && html`<a class="button strong" href=${provider}>Log in with single sign-on</a><p class="or dim">or</p>`}
      <label>Kubernetes token <input ref=${field} type="password" name="token" autocomplete="off" required autofocus=${!provider} /></label>
      <p class="dim">Such as <code>kubectl create token NAME</code> prints, or the one of your kubeconfig. It stays with this page's server, and is not written anywhere.</p>
      ${failure && html`<p class="failure" role="alert">${sentence(failure)}</p>`}
      <button class=${provider ? "" : "strong"} disabled=${busy}>${busy ? "Asking Kubernetes…" : "Log in"}</button>
    </form>
  </main>`;
}

function Sight() {
  const { sees } = me.value;
  if (sees.jobs === "none" && sees.pods === "none" && sees.nodes === "none")
    return html`<div class="stale" role="alert"><b>You may see nothing here.</b> Ask an administrator for the ClusterRole isthmus-web-viewer.</div>`;
  if (sees.jobs === "own") return html`<p class="note">You see your own jobs.</p>`;
  return null;
}

function App() {
  const [asked, setAsked] = useState(false);
  useEffect(() => {
    ask("/api/me")
      .then((found) => (me.value = found))
      .catch(() => {})
      .finally(() => setAsked(true));
  }, []);
  useEffect(() => {
    if (me.value) start();
    else stop();
  }, [me.value?.user]);
  const { view, path, name, query } = route.value;
  const title = (VIEWS.find(([it]) => it === view) || [0, name || "Isthmus"])[1];
  useEffect(() => {
    document.title = `${title} · Isthmus`;
  }, [title]);
  if (!me.value) return asked ? html`<${Login} />` : html`<p class="boot" role="status">Loading…</p>`;
  return html`<a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), document.querySelector("main").focus())}>Skip to content</a>
    <${Header} />
    <div class="banners"><${Staleness} /><${Sight} /></div>
    <main id="main" tabindex="-1">
      ${view === "queue" ? html`<${Queue} key=${query.toString()} query=${query} />` : view === "why" ? html`<${Why} path=${path} />` : view === "node" ? html`<${NodeView} name=${name} key=${name} />` : view === "people" ? html`<${People} />` : view === "history" ? html`<${History} />` : html`<${Now} />`}
    </main>
    <${Confirmation} /><${Toast} />`;
}

const place = document.getElementById("app");
place.replaceChildren();
render(html`<${App} />`, place);
