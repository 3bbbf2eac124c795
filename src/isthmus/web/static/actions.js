// What people do: always asked for once more, and told what became of it.
import { ask, html, sentence, signal, useEffect, useRef, useState } from "./lib.js";
import { me } from "./feed.js";

const TEXTS = {
  cancel: ["Cancel", "Its processes end. This cannot be undone.", true],
  hold: ["Hold", "It stays in the queue and does not start until it is released."],
  release: ["Release", "It may start again."],
  requeue: ["Requeue", "It is stopped, and starts from its beginning later.", true],
  drain: ["Drain", "Jobs that run there end in peace; no others start.", true],
  resume: ["Resume", "Slurm starts jobs there again."],
  uncordon: ["Uncordon", "Kubernetes places pods there again."],
};

const asked = signal(null);
export const toast = signal(null);

export const may = (action) => !!me.value?.can.includes(action);

/** Buttons for those actions that the person may do. */
export function Actions({ actions, target, name }) {
  const offered = actions.filter(may);
  if (!offered.length) return null;
  return html`<div class="actions">
    ${offered.map((action) => html`<button class=${TEXTS[action][2] ? "danger" : ""} onClick=${() => (asked.value = { action, target: String(target), name })}>${TEXTS[action][0]}</button>`)}
  </div>`;
}

export function Confirmation() {
  const dialog = useRef(null);
  const [reason, setReason] = useState("");
  const [failure, setFailure] = useState("");
  const [busy, setBusy] = useState(false);
  const it = asked.value;
  useEffect(() => {
    if (it) {
      setReason("");
      setFailure("");
      dialog.current.showModal();
    } else dialog.current?.close();
  }, [it]);
  const act = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const { done } = await ask("/api/act", { body: { action: it.action, target: it.target, reason }, csrf: me.value.csrf });
      toast.value = { text: `${sentence(done)}.` };
      setTimeout(() => (toast.value = null), 6000);
      asked.value = null;
    } catch (error) {
      setFailure(error.message);
    } finally {
      setBusy(false);
    }
  };
  const [title, text, danger] = it ? TEXTS[it.action] : ["", ""];
  return html`<dialog ref=${dialog} aria-labelledby="h-confirm" onClose=${() => (asked.value = null)}>
    <form onSubmit=${act}>
      <h2 id="h-confirm">${title} ${it?.name}?</h2>
      <p>${text}</p>
      ${it?.action === "drain" &&
      html`<label>Reason <input name="reason" required maxlength="200" value=${reason} onInput=${(event) => setReason(event.currentTarget.value)} placeholder="what is wrong, or what is planned" /></label>`}
      <p class="dim">Done as ${me.value?.user}${me.value?.slurmUser && it?.action !== "uncordon" ? `, in Slurm ${me.value.slurmUser}` : ""}.</p>
      ${failure && html`<p class="failure" role="alert">${failure}</p>`}
      <div class="buttons">
        <button type="button" onClick=${() => (asked.value = null)}>Keep it as it is</button>
        <button class=${danger ? "danger strong" : "strong"} disabled=${busy}>${title}</button>
      </div>
    </form>
  </dialog>`;
}

export const Toast = () => html`<div class="toasts" role="status">${toast.value && html`<p class="toast">${toast.value.text}</p>`}</div>`;
