// The page of `cotransport serve`. It keeps the token of this tab, and all text from the model goes through textContent.

const KEY = "cotransport-token";
const SHOWN_CLASSES = 3, SHOWN_ANSWERS = 100, SHOWN_THUMBNAILS = 60, ASKED_AT_ONCE = 16, BYTES_AT_ONCE = 48 * 2 ** 20, FEW_TESTED = 20;
const byId = (id) => document.getElementById(id);

let token = takeToken();
let version = null, known = [], coming = [], learned = [], busy = false;

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
const shortened = (names) => names.length > 8 ? `${listed(names.slice(0, 8))} and ${names.length - 8} more` : listed(names);

function say(text) { byId("live").textContent = text; }

function complain(error) {
  const place = byId("said");
  place.dataset.status = error?.status ?? "";
  place.textContent = error ? error.message || String(error) : "";
  place.hidden = !error;
  if (error) place.scrollIntoView({ block: "nearest" });
}

class Failure extends Error {
  constructor(status, message, unreadable = []) { super(message); Object.assign(this, { status, unreadable }); }
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
  if (!response.ok) throw failure(response.status, await response.json().catch(() => ({})));
  return response;
}

const failure = (status, told) => new Failure(status, told.error || `The server answered ${status}.`, told.unreadable);

// Send a form, and hear how much of it has been sent. Only XMLHttpRequest tells.
function send(path, form, progress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", path);
    request.setRequestHeader("Authorization", `Bearer ${token}`);
    request.responseType = "json";
    request.upload.addEventListener("progress", (event) => progress(event.loaded, event.total));
    request.addEventListener("error", () => reject(new Failure(0, "The server is not responding, or a photograph can no longer be read.")));
    request.addEventListener("load", () => {
      if (request.status === 401) signOut();
      if (request.status < 300) resolve(request.response);
      else reject(failure(request.status, request.response ?? {}));
    });
    request.send(form);
  });
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
  if (token) byId("sign-in-error").textContent = "The server does not accept this token. If it was started again, it has printed a new one.";
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  byId("connection").hidden = true;
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

// Files that are dropped on a place, or chosen with its input if it has one. `take` hears of files and of the folder that they are in.
function accept(place, take, input = null) {
  place.addEventListener("dragover", (event) => { event.preventDefault(); event.stopPropagation(); place.classList.add("over"); });
  place.addEventListener("dragleave", (event) => { event.stopPropagation(); place.classList.remove("over"); });
  place.addEventListener("drop", async (event) => {
    event.preventDefault();
    event.stopPropagation();
    place.classList.remove("over");
    try {
      for (const [folder, files] of await dropped(event.dataTransfer)) take(files, folder);
    } catch (error) { complain(error); }
  });
  input?.addEventListener("change", () => { take([...input.files], ""); input.value = ""; });
}

// What was dropped, by the name of its folder; files that are in no folder have the name "".
async function dropped(data) {
  // an image from another page is a file, but no entry of a file system
  const found = new Map(), entries = [...data.items].filter((item) => item.kind === "file").map((item) => item.webkitGetAsEntry() ?? item.getAsFile()).filter(Boolean);
  const add = (folder, file) => found.set(folder, [...(found.get(folder) ?? []), file]);
  const read = async (entry, folder) => {
    if (entry instanceof File) { add("", entry); return; }
    if (entry.name.startsWith(".") && (folder || !entry.isFile)) return;
    if (entry.isFile) {
      const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
      if (!folder || isImage(file)) add(folder, file);
      return;
    }
    const reader = entry.createReader();
    for (let some; (some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject))).length;) {
      for (const one of some) await read(one, entry.name.normalize("NFC"));
    }
  };
  for (const entry of entries) await read(entry, "");
  if (!found.size && entries.length) throw new Error("There are no photographs in this folder.");
  return found;
}

const isImage = (file) => file.type.startsWith("image/") || /\.(heic|heif)$/i.test(file.name);

for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault());

// --- what is this? -----------------------------------------------------------------------------------------------

let asking = Promise.resolve();
const predict = (files) => { asking = asking.then(() => look(files)); };  // one after another

accept(byId("ask"), predict, byId("ask-files"));

async function look(files) {
  complain(null);
  const asked = byId("asked"), counts = new Map(), list = byId("answers"), before = list.firstChild;
  let done = 0;
  for (const some of batches(files)) {
    asked.textContent = `Looking at ${plural(files.length, "photograph")}${done ? `: ${done} done` : ""} …`;
    const form = new FormData();
    for (const file of some) form.append("files", file);
    try {
      const response = await ask("api/predict", { method: "POST", body: form });
      const threshold = response.headers.get("Cotransport-Threshold"), answers = await response.json();
      for (const [number, answer] of answers.entries()) {
        const name = answer.error ? "not an image" : answer.unknown ? "unknown" : answer.classes[0].name;
        counts.set(name, (counts.get(name) ?? 0) + 1);
        if (done++ < SHOWN_ANSWERS) list.insertBefore(answered(answer, some[number], name, threshold), before);
      }
    } catch (error) { complain(error); break; }
  }
  while (list.children.length > SHOWN_ANSWERS) list.lastChild.remove();
  const most = [...counts].sort((one, other) => other[1] - one[1]).slice(0, 8).map(([name, count]) => `${count} ${name}`);
  const shown = done > SHOWN_ANSWERS ? ` The first ${SHOWN_ANSWERS} are shown.` : "";
  asked.textContent = done > 5 ? `${plural(done, "photograph")}: ${most.join(", ")}${counts.size > 8 ? " …" : "."}${shown}` : "";
}

// Files in groups that are small enough for a request.
function* batches(files) {
  let some = [], bytes = 0;
  for (const file of files) {
    if (some.length && (some.length === ASKED_AT_ONCE || bytes + file.size > BYTES_AT_ONCE)) { yield some; [some, bytes] = [[], 0]; }
    some.push(file);
    bytes += file.size;
  }
  if (some.length) yield some;
}

function answered(answer, file, title, threshold) {
  const [best] = answer.classes;
  const body = element("div", {}, element("p", { class: "best" }, title));
  if (answer.unknown) body.firstChild.append(" ", element("span", { class: "chip" }, `perhaps ${best.name}`));
  const why = answer.unknown && threshold ? `. An answer needs ${(100 * threshold).toFixed(1)} %` : "";
  body.append(element("p", { class: "soft file" }, answer.error ?? `${answer.file}${why}`));
  const scores = element("dl", { class: "scores" });
  for (const one of answer.classes.slice(0, SHOWN_CLASSES)) {
    const share = `${(100 * one.probability).toFixed(1)} %`;
    const bar = element("progress", { max: 1, value: one.probability, "aria-hidden": "true" });
    scores.append(element("dt", {}, one.name), element("dd", {}, bar), element("dd", {}, share));
  }
  body.append(scores);
  return element("li", {}, picture(file), body);
}

// --- teach -------------------------------------------------------------------------------------------------------

let rows = [], rowNumber = 0, sending = 0;
const named = (row) => row.name.value.trim().normalize("NFC");  // as the server does
const isEmpty = (row) => !named(row) && !row.files.length;

function addRow() {
  const number = ++rowNumber, row = { files: [] };
  const name = element("input", { id: `class-${number}`, maxLength: 200, autocomplete: "off", required: true, placeholder: "for example: tabby" });
  name.setAttribute("list", "known");
  const input = element("input", { id: `files-${number}`, type: "file", multiple: true, class: "hidden" });
  input.accept = "image/*,.heic,.heif";
  const strip = element("div", { class: "strip" });
  const count = element("p", { class: "soft", role: "status" });
  const hint = element("p", { class: "soft hint", role: "status" });
  const camera = element("button", { type: "button", onclick: () => openCamera(row.add) }, "Use the camera");
  const place = element("div", { class: "drop" }, input, element("label", { class: "button", htmlFor: input.id }, "Choose photographs"), camera, count);
  const clear = element("button", { type: "button", class: "plain", onclick: () => { row.keep(() => false); input.focus(); } }, "Leave all photographs out");
  const remove = element("button", { type: "button", class: "plain", onclick: () => removeRow(row) }, "Leave this class out");
  Object.assign(row, { name, remove });
  row.add = (files) => { row.files.push(...files); row.draw(); };
  row.keep = (wanted) => { row.files = row.files.filter(wanted); row.draw(); };
  row.draw = () => {
    const shown = row.files.slice(0, SHOWN_THUMBNAILS), before = new Map([...strip.children].map((child) => [child.file, child]));
    strip.replaceChildren(...shown.map((file) => before.get(file) ?? Object.assign(leaveOut(row, file), { file })));
    const more = row.files.length - shown.length;
    if (more) strip.append(element("span", { class: "soft" }, `and ${more.toLocaleString("en-GB")} more`));
    count.textContent = row.files.length ? plural(row.files.length, "photograph") : "no photographs yet";
    clear.hidden = row.files.length < 2;
  };
  row.update = () => {
    const typed = named(row), similar = known.find((one) => one !== typed && one.toLowerCase() === typed.toLowerCase());
    hint.textContent = known.includes(typed) ? "The model knows this class already. These photographs are added to it."
      : coming.includes(typed) ? "A lesson is about to teach this class. These photographs are added to it."
        : similar ? `The model knows ${similar}. This will be another class.` : "";
  };
  name.addEventListener("input", row.update);
  row.element = element("li", {}, element("label", { htmlFor: name.id }, "Name of the class"), name, hint, place, strip, clear, remove);
  accept(place, (files, folder) => addTo(row, files, folder), input);
  rows.push(row);
  byId("rows").append(row.element);
  row.draw();
  updateRows();
  return row;
}

// A photograph of a lesson, as a button that leaves it out.
function leaveOut(row, file) {
  const words = `Leave out ${file.name}`;
  const leave = (event) => {
    const next = event.currentTarget.nextElementSibling;
    row.keep((one) => one !== file);
    (next?.file ? next : row.name).focus();
  };
  return element("button", { type: "button", class: "thumbnail", title: words, "aria-label": words, onclick: leave }, picture(file, ""));
}

// Add photographs to a class. Those of a folder go to the class of that name, or to this one if it has no name yet.
function addTo(row, files, folder) {
  let wanted = rows.includes(row) ? row : rows.at(-1);  // reading a folder takes time, and the row may be gone
  if (folder && named(wanted) !== folder) {
    wanted = rows.find((one) => named(one) === folder) ?? (named(wanted) ? rows.find(isEmpty) ?? addRow() : wanted);
  }
  if (folder && !named(wanted)) wanted.name.value = folder;
  wanted.add(files);
  wanted.update();
}

function removeRow(row) {
  rows = rows.filter((one) => one !== row);
  row.element.remove();
  updateRows();
  byId("add-row").focus();
}

function updateRows() { for (const row of rows) row.remove.hidden = rows.length === 1; }

byId("add-row").addEventListener("click", () => addRow().name.focus());
accept(byId("teach"), (files, folder) => addTo(rows.at(-1), files, folder));
addEventListener("beforeunload", (event) => { if (sending) event.preventDefault(); });

byId("teach-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  complain(null);
  const form = new FormData(), sent = rows, names = listed(sent.map(named));
  for (const row of sent) {
    const name = named(row);
    if (!name || !row.files.length) { row.name.focus(); complain(new Error(name ? `Add photographs of ${name}.` : "Name the class.")); return; }
    form.append("class", name);
    for (const file of row.files) form.append("files", file);
  }
  if (sent.some((row) => [...known, ...coming].includes(named(row)))) form.append("known_classes", "extend");
  const limit = byId("forgetting"), forgetting = limit.value, files = sent.flatMap((row) => row.files);
  if (forgetting) form.append("max_forgetting", forgetting);
  limit.value = "";
  rows = [];
  byId("rows").replaceChildren();
  addRow();  // can be filled in while the photographs are sent
  const bar = element("progress", { "aria-label": `Sending ${names}` }), words = element("p", { class: "soft" }, `sending ${names} …`);
  const item = element("li", {}, words, bar);
  byId("sending").append(item);
  sending++;
  try {
    await send("api/teach", form, (done, all) => {
      [bar.max, bar.value] = [all, done];
      if (done === all) words.textContent = `checking ${names} …`;
    });
    say("The lesson is queued");
  } catch (error) {
    const bad = new Set((error.unreadable ?? []).map((number) => files[number]));
    for (const row of rows) if (isEmpty(row)) row.element.remove();
    rows = [...sent, ...rows.filter((row) => !isEmpty(row))];
    byId("rows").prepend(...sent.map((row) => row.element));
    for (const row of sent) row.keep((file) => !bad.has(file));
    limit.value ||= forgetting;
    updateRows();
    const first = [...bad].slice(0, 5).map((file) => file.name);
    complain(bad.size ? new Error(`${plural(bad.size, "file is not an image", "files are not images")} that can be read: ${listed(first)}${bad.size > 5 ? " …" : ""}. `
      + `${bad.size === 1 ? "It was" : "They were"} left out. Press Teach to go on without ${bad.size === 1 ? "it" : "them"}.`) : error);
  } finally {
    sending--;
    item.remove();
  }
});

// --- the camera --------------------------------------------------------------------------------------------------

let camera = null;

async function openCamera(take) {
  complain(null);
  try {
    camera = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch {
    complain(new Error(isSecureContext ? "No camera is available to this page."
      : "Browsers allow the camera only on pages served over https, or on the machine that runs the server. See “Behind a proxy” in the documentation."));
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
  const ended = lessons.filter((one) => one.result || one.error);
  learned = lessons.filter((one) => one.state === "done").map((one) => one.id);
  byId("keep-all").hidden = learned.length < 2;
  const active = lessons.filter((one) => !ended.includes(one));  // the running one, then those that wait
  const items = [...active, ...ended.reverse()].map((lesson) => {
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

const dismissed = (id) => ask(`api/lessons/${id}`, { method: "DELETE" });

byId("keep-all").addEventListener("click", (event) => doing(event.target, async () => {
  for (const id of [...learned]) await dismissed(id);
  byId("lessons-title").focus();
}));

function showLesson(lesson) {
  const [word, kind] = CHIPS[lesson.state];
  const images = lesson.classes.reduce((sum, one) => sum + one.images, 0);
  const head = element("div", { class: "head" }, element("h3", {}, title(lesson)), element("span", { class: `chip ${kind}` }, word));
  const item = element("li", {}, head, element("p", { class: "soft" }, plural(images, "photograph")));
  const actions = element("div", { class: "row" });
  const button = (text, work, main) => actions.append(element("button", { class: main ? "main" : "", onclick: (event) => doing(event.target, work) }, text));
  const dismiss = () => dismissed(lesson.id);
  if (lesson.state === "queued" || lesson.state === "running") {
    if (lesson.state === "running") item.append(element("progress", { "aria-label": `Progress of ${title(lesson)}` }), element("p", { class: "soft stage" }));
    button("Cancel", dismiss);
  } else {
    if (lesson.result) item.append(...outcome(lesson.result));
    if (lesson.error) item.append(element("p", { class: "bad" }, lesson.error));
    const list = (lines) => element("ul", { class: "soft" }, ...lines.map((line) => element("li", {}, line)));
    if (lesson.notes.length) item.append(list(lesson.notes));
    if (lesson.settings.length) item.append(element("details", {}, element("summary", {}, "How it was learned"), list(lesson.settings)));
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
  const tested = result.per_class.filter((one) => one.images > 0), known = tested.filter((one) => one.before !== null);
  const changed = result.per_class.filter((one) => one.images > 0 || result.new_classes.includes(one.name));
  const few = tested.reduce((sum, one) => sum + one.images, 0) < FEW_TESTED ? ", which are too few to be sure" : "";
  words.push(result.accuracy === null
    ? `Version ${result.version} is ready. There were too few photographs to test it.`
    : `Version ${result.version} recognises ${recognised(tested, "after")} held-out photographs${few}.`);
  if (known.length) words.push(`Those of the classes known before: ${recognised(known, "before")} before, ${recognised(known, "after")} now.`);
  found.push(element("p", {}, words.join(" ")));
  if (changed.length) {
    const body = element("tbody");
    for (const one of changed) {
      const images = (one.gained ?? 0) - (one.lost ?? 0);
      const change = result.new_classes.includes(one.name) ? "new" : images === 0 ? "" : `${images > 0 ? "+" : "−"}${Math.abs(images)}`;
      const before = one.before === null ? "–" : recognised([one], "before");
      body.append(element("tr", {}, element("th", { scope: "row" }, one.name), element("td", {}, before),
        element("td", {}, one.images ? recognised([one], "after") : "not tested"), element("td", { class: images > 0 ? "good" : images < 0 ? "bad" : "soft" }, change)));
    }
    const heads = ["class", "before", "now", "change"].map((text) => element("th", { scope: "col" }, text));
    const table = element("div", { class: "sideways", tabIndex: 0, role: "region", "aria-label": "Held-out photographs of each class that are recognised" }, element("table", { class: "changes" }, element("thead", {}, element("tr", {}, ...heads)), body));
    found.push(changed.length <= 12 ? table : element("details", {}, element("summary", {}, plural(changed.length, "class", "classes")), table));
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
  byId("classes-hint").textContent = classes.length ? "Pictures that the model keeps, and how many of the held-out ones it recognises. The shares say how much a class has in common with others." : "Nothing yet: teach it a class.";
  byId("known").replaceChildren(...known.map((name) => element("option", { value: name })));
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
  button.addEventListener("click", () => button.closest("dialog").close());
}

// Open a dialog. It closes when its form is sent and `work` succeeds; errors are shown in it.
function confirm(dialog, work) {
  const error = dialog.querySelector(".bad"), form = dialog.querySelector("form");
  let isSent = false;
  const submit = async (event) => {
    event.preventDefault();
    if (isSent) return;
    isSent = true;
    error.textContent = "";
    try {
      await work();
      if (form.onsubmit === submit) dialog.close();  // otherwise, it was closed and opened again
    } catch (failed) { if (form.onsubmit === submit) error.textContent = failed.message; }
    isSent = false;
  };
  error.textContent = "";
  form.onsubmit = submit;
  dialog.showModal();
}

function rename(name) {
  byId("rename-label").textContent = `New name of ${name}`;
  byId("new-name").value = name;
  confirm(byId("rename-dialog"), async () => {
    const wanted = byId("new-name").value.trim();
    if (wanted === name) return;
    await post("api/rename", { name, to: wanted });
    say(`${name} is now called ${wanted}`);
  });
  byId("new-name").select();
}

function remove(name) {
  byId("remove-title").textContent = byId("remove-button").textContent = "Remove";
  byId("remove-text").textContent = `The new version will not know ${name}. You can go back to the previous version.`;
  confirm(byId("remove-dialog"), async () => { await post("api/remove", { name }); say(`${name} is removed`); });
}

function empty() {
  byId("remove-title").textContent = byId("remove-button").textContent = "Empty the model";
  byId("remove-text").textContent = "The model will know no class. All versions stay, and you can go back to any of them.";
  confirm(byId("remove-dialog"), () => post("api/rollback", { to: 0 }));
}

function showVersions(versions) {
  byId("versions-section").hidden = !versions.length;
  const lines = [...versions].reverse().map((one) => {
    const action = element("td");
    if (one.current) action.append(element("span", { class: "chip now" }, "current"));
    else if (one.damaged) action.append(element("span", { class: "chip bad" }, "damaged"));
    else action.append(useVersion(one.version));
    const more = one.extended.length ? `more of ${shortened(one.extended)}` : "";
    const learned = one.change ?? [shortened(one.new_classes), more].filter(Boolean).join("; ");
    const lost = one.accuracy_lost === null || one.change ? "–" : one.accuracy_lost.toFixed(1);
    return element("tr", {}, element("th", { scope: "row" }, String(one.version)), element("td", {}, one.refused ? `${learned} (refused)` : learned || "–"),
      element("td", {}, String(one.classes ?? "–")), element("td", {}, percent(one.accuracy)), element("td", {}, lost),
      element("td", {}, new Date(one.made).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" })), action);
  });
  replace(byId("versions"), lines, "versions-title");
  byId("empty").hidden = version === null;
}

const useVersion = (number) => element("button", { class: "plain", onclick: (event) => doing(event.target, () => post("api/rollback", { to: number })) }, `Use version ${number}`);
byId("empty").addEventListener("click", empty);

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
  if (byId("said").dataset.status === "0") complain(null);  // it is responding again
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
