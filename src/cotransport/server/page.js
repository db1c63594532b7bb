// The page of `cotransport serve`. It keeps the token of this tab, and all text from the model goes through textContent.

const KEY = "cotransport-token";
const SHOWN_CLASSES = 3, SHOWN_ANSWERS = 12, SHOWN_THUMBNAILS = 24, ASKED_AT_ONCE = 16;
const byId = (id) => document.getElementById(id);

let token = takeToken();
let version = null, known = [], coming = [], busy = false;

// The token arrives in the address once. It is kept for this tab only, and removed from the address and the history.
function takeToken() {
  const address = new URL(location.href);
  const given = address.searchParams.get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    address.searchParams.delete("token");
    history.replaceState(null, "", address);
  }
  return sessionStorage.getItem(KEY);
}

function element(tag, values = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(values)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const percent = (value) => (value === null ? "–" : `${value.toFixed(1)} %`);
const recognised = (classes, when) => {
  const count = (of) => classes.reduce((sum, one) => sum + of(one), 0).toLocaleString("en-GB");
  return `${count((one) => Math.round(one[when] * one.images / 100))} of ${count((one) => one.images)}`;
};
const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en-GB")} ${count === 1 ? one : many}`;
const listed = (names) => new Intl.ListFormat("en-GB").format(names);

function say(text) { byId("live").textContent = text; }

function complain(error) {
  const place = byId("said");
  place.textContent = error ? error.message || String(error) : "";
  place.hidden = !error;
  if (error) place.scrollIntoView({ block: "nearest" });
}

class Failure extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

async function ask(path, options = {}) {
  const headers = { Authorization: `Bearer ${token}`, ...options.headers };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch {
    throw new Failure(0, "The server is not responding. Is it still running?");
  }
  if (response.status === 401) signOut();
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw new Failure(response.status, told.error || `The server answered ${response.status}.`);
  }
  return response;
}

const get = async (path) => (await ask(path)).json();
const post = async (path, values) =>
  (await ask(path, { method: "POST", body: JSON.stringify(values), headers: { "Content-Type": "application/json" } })).json();

// Run a button's action. Errors are shown, and the button cannot be pressed twice.
async function doing(button, work) {
  if (button.ariaDisabled === "true") return;  // a disabled button would lose the focus
  button.ariaDisabled = "true";
  complain(null);
  try { await work(); } catch (error) { complain(error); } finally { button.ariaDisabled = null; }
}

// Replace the items of a list. The focus stays where it was, or goes to the heading if its item is gone.
function replace(list, items, heading) {
  const focused = list.contains(document.activeElement) ? document.activeElement : null;
  list.replaceChildren(...items);
  if (focused) (focused.isConnected ? focused : byId(heading)).focus();
}

// --- signing in --------------------------------------------------------------------------------------------------

function signOut() {
  token = null;
  sessionStorage.removeItem(KEY);
  byId("content").hidden = true;
  byId("sign-in").hidden = false;
  byId("summary").textContent = "Sign in to continue";
}

byId("sign-in-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  sessionStorage.setItem(KEY, token);
  start();
});

// --- pictures and files ------------------------------------------------------------------------------------------

function picture(file, className = "picture") {
  const image = element("img", { class: className, alt: "" });
  const address = URL.createObjectURL(file);
  image.addEventListener("load", () => {
    if (Math.max(image.naturalWidth, image.naturalHeight) <= 40) image.classList.add("tiny");
    URL.revokeObjectURL(address);
  });
  image.addEventListener("error", () => URL.revokeObjectURL(address));
  image.src = address;
  return image;
}

function thumbnail(address) {
  const image = element("img", { alt: "", src: address });
  image.addEventListener("load", () => image.classList.toggle("tiny", image.naturalWidth <= 40));
  return image;
}

// Files that are dropped on a place or chosen with its input.
function accept(place, input, take) {
  place.addEventListener("dragover", (event) => { event.preventDefault(); place.classList.add("over"); });
  place.addEventListener("dragleave", () => place.classList.remove("over"));
  place.addEventListener("drop", (event) => {
    event.preventDefault();
    place.classList.remove("over");
    take([...event.dataTransfer.files]);
  });
  input.addEventListener("change", () => { take([...input.files]); input.value = ""; });
}

for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault());

// --- what is this? -----------------------------------------------------------------------------------------------

accept(byId("ask"), byId("ask-files"), predict);

async function predict(files) {
  complain(null);
  for (let first = 0; first < files.length; first += ASKED_AT_ONCE) {
    const some = files.slice(first, first + ASKED_AT_ONCE);
    const form = new FormData();
    for (const file of some) form.append("files", file);
    try {
      const answers = await (await ask("api/predict", { method: "POST", body: form })).json();
      answers.forEach((answer, number) => show(answer, some[number]));
    } catch (error) { complain(error); return; }
  }
}

function show(answer, file) {
  const [best] = answer.classes;
  const title = answer.error ? "not an image" : answer.unknown ? "unknown" : best.name;
  const body = element("div", {}, element("p", { class: "best" }, title));
  if (answer.error) body.append(element("p", { class: "soft" }, answer.error));
  if (answer.unknown) body.firstChild.append(" ", element("span", { class: "chip" }, `perhaps ${best.name}`));
  const scores = element("dl", { class: "scores" });
  for (const one of answer.classes.slice(0, SHOWN_CLASSES)) {
    const share = `${(100 * one.probability).toFixed(1)} %`;
    const bar = element("progress", { max: 1, value: one.probability, "aria-hidden": "true" });
    scores.append(element("dt", { title: one.name }, one.name), element("dd", {}, bar), element("dd", {}, share));
  }
  body.append(scores);
  const list = byId("answers");
  list.prepend(element("li", {}, picture(file), body));
  while (list.children.length > SHOWN_ANSWERS) list.lastChild.remove();
}

// --- teach -------------------------------------------------------------------------------------------------------

let rows = [], rowNumber = 0;

function addRow() {
  const number = ++rowNumber, row = { files: [] };
  const name = element("input", { id: `class-${number}`, maxLength: 200, autocomplete: "off", required: true, placeholder: "for example: tabby" });
  const input = element("input", { id: `files-${number}`, type: "file", multiple: true, class: "hidden" });
  input.accept = "image/*,.heic,.heif";
  const strip = element("div", { class: "strip" });
  const count = element("p", { class: "soft", role: "status" }, "no photographs yet");
  const hint = element("p", { class: "soft", role: "status" });
  const camera = element("button", { type: "button", onclick: () => openCamera(row.add) }, "Use the camera");
  const place = element("div", { class: "drop" }, input, element("label", { class: "button", htmlFor: input.id }, "Choose photographs"), camera, count);
  const remove = element("button", { type: "button", class: "plain", onclick: () => removeRow(row) }, "Leave this class out");
  row.name = name;
  row.add = (files) => {
    row.files.push(...files);
    for (const file of files.slice(0, Math.max(0, SHOWN_THUMBNAILS - strip.children.length))) strip.append(picture(file, ""));
    count.textContent = plural(row.files.length, "photograph");
  };
  row.update = () => {
    const typed = name.value.trim();
    hint.textContent = known.includes(typed) ? "The model knows this class already. These photographs are added to it."
      : coming.includes(typed) ? "A lesson is about to teach this class. These photographs are added to it." : "";
  };
  name.addEventListener("input", row.update);
  row.element = element("li", {}, element("label", { htmlFor: name.id }, "Name of the class"), name, hint, place, strip, remove);
  accept(place, input, row.add);
  row.remove = remove;
  rows.push(row);
  byId("rows").append(row.element);
  updateRows();
  return row;
}

function removeRow(row) {
  rows = rows.filter((one) => one !== row);
  row.element.remove();
  updateRows();
  byId("add-row").focus();
}

function updateRows() { for (const row of rows) row.remove.hidden = rows.length === 1; }

byId("add-row").addEventListener("click", () => addRow().name.focus());

byId("teach-form").addEventListener("submit", (event) => {
  event.preventDefault();
  doing(byId("teach-button"), async () => {
    const form = new FormData(), sent = rows;
    for (const row of sent) {
      const name = row.name.value.trim();
      if (!row.files.length) { row.name.focus(); throw new Error(`Add photographs of ${name}.`); }
      form.append("class", name);
      for (const file of row.files) form.append("files", file);
    }
    if (sent.some((row) => [...known, ...coming].includes(row.name.value.trim()))) form.append("known_classes", "extend");
    if (byId("forgetting").value) form.append("max_forgetting", byId("forgetting").value);
    rows = [];
    byId("rows").replaceChildren();
    const next = addRow();  // can be filled in while the photographs are sent
    try {
      await ask("api/teach", { method: "POST", body: form });
      say("The lesson is queued");
    } catch (error) {
      const untouched = !next.name.value && !next.files.length;
      rows = [...sent, ...(untouched ? rows.filter((row) => row !== next) : rows)];
      byId("rows").replaceChildren(...rows.map((row) => row.element));
      updateRows();
      throw error;
    }
  });
});

// --- the camera --------------------------------------------------------------------------------------------------

let camera = null;

async function openCamera(take) {
  complain(null);
  try {
    camera = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch {
    complain(new Error("No camera is available to this page."));
    return;
  }
  let taken = 0;
  byId("video").srcObject = camera;
  byId("camera-count").textContent = "";
  byId("camera-take").onclick = () => {
    const video = byId("video"), canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
    canvas.getContext("2d").drawImage(video, 0, 0);
    canvas.toBlob((blob) => {
      take([new File([blob], `camera-${Date.now()}.jpg`, { type: "image/jpeg" })]);
      byId("camera-count").textContent = plural(++taken, "photograph");
    }, "image/jpeg", 0.92);
  };
  byId("camera-dialog").showModal();
}

byId("camera-close").addEventListener("click", () => byId("camera-dialog").close());
byId("camera-dialog").addEventListener("close", () => { camera?.getTracks().forEach((track) => track.stop()); camera = null; });
document.querySelector("[data-camera=ask]").addEventListener("click", () => openCamera(predict));

// --- lessons -----------------------------------------------------------------------------------------------------

const STAGES = {
  waiting: "waiting for another command that changes the model", starting: "starting", reading: "reading the photographs",
  trial: "trying a network", features: "looking at the photographs", training: "learning", testing: "testing what it has learned",
};
const CHIPS = { queued: ["waiting", ""], running: ["learning", "now"], done: ["learned", "good"], refused: ["refused", "bad"], failed: ["failed", "bad"] };

function showLessons(lessons) {
  coming = lessons.filter((one) => one.state === "queued" || one.state === "running").flatMap((one) => one.classes.map((taught) => taught.name));
  for (const row of rows) row.update();
  byId("lessons-section").hidden = !lessons.length;
  const list = byId("lessons"), before = new Map([...list.children].map((item) => [item.dataset.id, item]));
  const items = [...lessons].reverse().map((lesson) => {
    const old = before.get(lesson.id), signature = JSON.stringify([lesson.state, version]);
    if (old && old.dataset.signature === signature) { updateProgress(old, lesson); return old; }
    if (old && old.dataset.state !== lesson.state) say(`${title(lesson)}: ${CHIPS[lesson.state][0]}`);
    const item = showLesson(lesson);
    Object.assign(item.dataset, { id: lesson.id, signature, state: lesson.state });
    updateProgress(item, lesson);
    return item;
  });
  if (items.length !== list.children.length || items.some((item, place) => list.children[place] !== item)) replace(list, items, lessons.length ? "lessons-title" : "classes-title");
}

const title = (lesson) => listed(lesson.classes.map((one) => one.name));

function showLesson(lesson) {
  const [word, kind] = CHIPS[lesson.state];
  const images = lesson.classes.reduce((sum, one) => sum + one.images, 0);
  const head = element("div", { class: "head" }, element("h3", {}, title(lesson)), element("span", { class: `chip ${kind}` }, word));
  const item = element("li", {}, head, element("p", { class: "soft" }, plural(images, "photograph")));
  const actions = element("div", { class: "row" });
  const button = (text, work, main) => actions.append(element("button", { class: main ? "main" : "", onclick: (event) => doing(event.target, work) }, text));
  const dismiss = () => ask(`api/lessons/${lesson.id}`, { method: "DELETE" });
  if (lesson.state === "queued" || lesson.state === "running") {
    if (lesson.state === "running") item.append(element("progress", { "aria-label": `Progress of ${title(lesson)}` }), element("p", { class: "soft stage" }));
    button("Cancel", dismiss);
  } else {
    if (lesson.result) item.append(...outcome(lesson.result));
    if (lesson.error) item.append(element("p", { class: "bad" }, lesson.error));
    if (lesson.notes.length) {
      const notes = element("ul", { class: "soft" }, ...lesson.notes.map((note) => element("li", {}, note)));
      item.append(element("details", {}, element("summary", {}, "How it was learned"), notes));
    }
    if (lesson.state === "done") {
      button("Keep", dismiss, true);
      if (lesson.result.version === version) {
        button("Undo", async () => { await post("api/rollback", { to: lesson.result.parent ?? 0 }); await dismiss(); say("The lesson is undone"); });
      }
    } else {
      if (lesson.state === "refused") button("Use it anyway", async () => { await post("api/rollback", { to: lesson.result.version }); await dismiss(); });
      button("Close", dismiss);
    }
  }
  item.append(actions);
  return item;
}

function updateProgress(item, lesson) {
  const bar = item.querySelector("progress"), words = item.querySelector(".stage");
  if (!bar || !lesson.progress) return;
  const { stage, done, of, seconds_left: left } = lesson.progress;
  if (of && done) { bar.max = of; bar.value = done; } else bar.removeAttribute("value");
  const time = left === null || (stage !== "training" && left < 1.5) ? "" : left < 1.5 ? ", almost done" : left < 100 ? `, about ${Math.ceil(left)} s left` : `, about ${Math.ceil(left / 60)} min left`;
  const count = of && ["reading", "features"].includes(stage) ? `: ${done.toLocaleString("en-GB")} of ${of.toLocaleString("en-GB")}` : "";
  words.textContent = STAGES[stage] + count + time;
}

function outcome(result) {
  const found = [];
  const words = [];
  if (result.already) words.push("Exactly these photographs were learned before.");
  const changed = result.per_class.filter((one) => one.images > 0);
  const known = changed.filter((one) => one.before !== null);
  words.push(result.accuracy === null
    ? `Version ${result.version} is ready. There were too few photographs to test it.`
    : `Version ${result.version} recognises ${recognised(changed, "after")} held-out photographs.`);
  if (known.length) words.push(`Of the classes known before: ${recognised(known, "before")} before, ${recognised(known, "after")} now.`);
  found.push(element("p", {}, words.join(" ")));
  if (changed.length) {
    const body = element("tbody");
    for (const one of changed) {
      const images = (one.gained ?? 0) - (one.lost ?? 0);
      const change = one.before === null ? "new" : images === 0 ? "" : `${images > 0 ? "+" : "−"}${Math.abs(images)}`;
      const before = one.before === null ? "–" : recognised([one], "before");
      body.append(element("tr", {}, element("th", { scope: "row" }, one.name), element("td", {}, before),
        element("td", {}, recognised([one], "after")), element("td", { class: images > 0 ? "good" : images < 0 ? "bad" : "soft" }, change)));
    }
    const heads = ["class", "before", "now", "change"].map((text) => element("th", { scope: "col" }, text));
    const table = element("div", { class: "sideways", tabIndex: 0, role: "region", "aria-label": "Held-out photographs of each class that are recognised" }, element("table", { class: "changes" }, element("thead", {}, element("tr", {}, ...heads)), body));
    const few = changed.length <= 12;
    found.push(few ? table : element("details", {}, element("summary", {}, plural(changed.length, "class", "classes")), table));
  }
  return found;
}

// --- what it knows, and versions ---------------------------------------------------------------------------------

function showClasses(classes) {
  known = classes.map((one) => one.name);
  const faces = new Map(classes.map((one) => [one.name, one.pictures[0]]));
  byId("ask-hint").textContent = classes.length
    ? "Drop photographs here, and the model says what it sees."
    : "The model knows nothing yet. Teach it a class or two first.";
  byId("classes-hint").textContent = classes.length ? "Pictures that the model keeps, and how many of the held-out ones it recognises." : "Nothing yet: teach it a class.";
  for (const control of byId("ask-drop").querySelectorAll("button, input")) control.disabled = !classes.length;
  replace(byId("classes"), classes.map((one) => {
    const strip = element("div", { class: "strip" }, ...one.pictures.map(thumbnail));
    const tested = one.held_out ? `${one.recognised} of ${one.held_out} recognised` : "not tested";
    const item = element("li", {}, strip, element("h3", {}, one.name),
      element("p", { class: "meta" }, one.arrived === null ? tested : `${tested} · since version ${one.arrived}`));
    if (one.held_out) item.append(element("progress", { max: one.held_out, value: one.recognised, "aria-hidden": "true" }));
    const related = one.built_from.length ? ["built from", one.built_from] : one.similar.length ? ["resembles", one.similar] : null;
    if (related) {
      item.append(element("ul", { class: "built", "aria-label": `${one.name} ${related[0]}` }, element("li", {}, related[0]),
        ...related[1].map((other) => element("li", {}, ...(faces.get(other.name) ? [thumbnail(faces.get(other.name))] : []), `${other.name} ${Math.round(100 * other.share)} %`))));
    }
    item.append(element("div", { class: "actions" },
      element("button", { class: "plain", "aria-label": `Rename ${one.name}`, onclick: () => rename(one.name) }, "Rename"),
      element("button", { class: "plain", "aria-label": `Remove ${one.name}`, onclick: () => remove(one.name) }, "Remove")));
    return item;
  }), "classes-title");
  for (const row of rows) row.update();
}

for (const button of document.querySelectorAll("[data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close("cancel"));
}

function confirmed(dialog) {
  dialog.returnValue = "cancel";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

async function rename(name) {
  byId("rename-label").textContent = `New name of ${name}`;
  byId("new-name").value = name;
  if (!(await confirmed(byId("rename-dialog")))) return;
  const wanted = byId("new-name").value.trim();
  if (wanted && wanted !== name) await post("api/rename", { name, to: wanted }).then(() => say(`${name} is now called ${wanted}`), complain);
}

async function remove(name) {
  byId("remove-text").textContent = `The new version will not know ${name}. You can go back to the previous version.`;
  if (await confirmed(byId("remove-dialog"))) await post("api/remove", { name }).then(() => say(`${name} is removed`), complain);
}

function showVersions(versions) {
  byId("versions-section").hidden = !versions.length;
  const lines = [...versions].reverse().map((one) => {
    const action = element("td");
    if (one.current) action.append(element("span", { class: "chip now" }, "current"));
    else if (one.damaged) action.append(element("span", { class: "chip bad" }, "damaged"));
    else action.append(useVersion(one.version, `Use version ${one.version}`));
    const named = one.new_classes.length > 8 ? `${listed(one.new_classes.slice(0, 8))} and ${one.new_classes.length - 8} more` : listed(one.new_classes);
    const learned = one.change ?? named;
    const lost = one.accuracy_lost === null || one.change ? "–" : one.accuracy_lost.toFixed(1);
    return element("tr", {}, element("th", { scope: "row" }, String(one.version)), element("td", {}, one.refused ? `${learned} (refused)` : learned || "–"),
      element("td", {}, String(one.classes ?? "–")), element("td", {}, percent(one.accuracy)), element("td", {}, lost),
      element("td", {}, new Date(one.made).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" })), action);
  });
  replace(byId("versions"), lines, "versions-title");
  byId("empty").hidden = version === null;
}

const useVersion = (number, text) => element("button", { class: "plain", onclick: (event) => doing(event.target, () => post("api/rollback", { to: number })) }, text);
byId("empty").append(useVersion(0, "Empty the model"));

async function refresh() {
  const [classes, versions] = await Promise.all([get("api/classes?pictures=true"), get("api/versions")]);
  showClasses(classes);
  showVersions(versions);
  byId("summary").textContent = classes.length ? `version ${version} · ${plural(classes.length, "class", "classes")}` : versions.length ? "an empty model" : "a new model";
}

// --- news from the server ----------------------------------------------------------------------------------------

let seen;

async function hear(state) {
  const isNew = state.version !== seen;
  version = state.version;
  byId("name").textContent = state.name;
  document.title = `${state.name} – cotransport`;
  showLessons(state.lessons);
  if (isNew) {
    seen = state.version;
    try { await refresh(); } catch (error) { seen = undefined; throw error; }
  }
}

// Server-sent events, read with fetch because the token is sent in a header.
async function listen() {
  const response = await ask("api/events");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  byId("connection").hidden = true;
  for (let text = ""; ;) {
    const { value, done } = await reader.read();
    if (done) throw new Failure(0, "The connection has ended");
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").find((line) => line.startsWith("data: "));
      if (data) await hear(JSON.parse(data.slice(6)));
    }
  }
}

async function start() {
  if (!token) { signOut(); return; }
  if (busy) return;
  busy = true;
  byId("sign-in").hidden = true;
  byId("content").hidden = false;
  while (token) {
    try { await listen(); } catch (error) {
      if (!token) break;
      byId("connection").hidden = false;
      seen = undefined;
      await new Promise((resolve) => setTimeout(resolve, 1500));
    }
  }
  busy = false;
}

addRow();
start();
