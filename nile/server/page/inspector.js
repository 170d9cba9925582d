// What the control tables tell, drawn: this page knows nothing that SELECT * FROM nile_... does not say.
"use strict";

const EVERY = 1000, ZONES_EVERY = 3000, BOX = { w: 216, h: 62, gapX: 34, gapY: 14 };
const $ = (id) => document.getElementById(id);
const make = (tag, given = {}, ...inside) => {
  const one = tag in SVG ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(given)) one.setAttribute(name, value);
  one.append(...inside);
  return one;
};
const SVG = { svg: 1, g: 1, rect: 1, path: 1 };
const text = (x, y, kind = "") => {
  const one = document.createElementNS("http://www.w3.org/2000/svg", "text");
  one.setAttribute("x", x); one.setAttribute("y", y);
  if (kind) one.setAttribute("class", kind);
  return one;
};
const say = (node, told) => { if (node.textContent !== told) node.textContent = told; };
const few = (names) => {  // of a list of names as many as fit, and how many more there are
  const each = names.split(", ");
  let shown = names.length < 60 ? each.length : 1;
  while (shown < each.length && each.slice(0, shown + 1).join(", ").length < 40) shown++;
  return each.slice(0, shown).join(", ") + (shown < each.length ? ` and ${each.length - shown} more` : "");
};
const quoted = (name) => "'" + name.replaceAll("'", "''") + "'";
const count = (n) => n === null || n === undefined ? "" : Math.abs(n) < 1e6 ? Math.round(n).toLocaleString("en") :
  n < 1e9 ? (n / 1e6).toFixed(2) + " M" : (n / 1e9).toFixed(2) + " G";
const brief = (n) => n < 1e5 || n >= 1e6 ? count(n) : Math.round(n / 1e3) + " k";
const bytes = (n) => n === null || n === undefined ? "" : n < 1e3 ? n + " B" : n < 1e6 ? (n / 1e3).toFixed(1) + " kB" :
  n < 1e9 ? (n / 1e6).toFixed(1) + " MB" : (n / 1e9).toFixed(2) + " GB";

let token = new URLSearchParams(location.hash.slice(1)).get("token") || sessionStorage.getItem("nile-token");
if (location.hash) history.replaceState(null, "", location.pathname); // a password does not stay in the address
let held = false, asking = false, zonesAt = 0;
const undoes = [], before = new Map(), shown = new Map(), heats = new Map();

async function ask(path, method = "GET", body = undefined) {
  const answer = await fetch(path, {
    method, body: body && JSON.stringify(body), cache: "no-store",
    headers: { Authorization: "Bearer " + token, ...(body ? { "Content-Type": "application/json" } : {}) },
  });
  const told = await answer.text();
  if (answer.ok) return told;
  const { error, kind } = JSON.parse(told);
  throw Object.assign(new Error(error), { kind });
}
const rows = async (sql) => (await ask("/sql", "POST", { sql })).split("\n").filter(Boolean).map((line) => JSON.parse(line));

function fault(error) {
  $("fault").hidden = !error;
  say($("fault"), error ? error.message : "");
  if (error && error.kind === "token") { $("login").hidden = false; token = null; }
}

// Per second, from one look to the next.
function rate(key, value, now) {
  const last = before.get(key);
  before.set(key, { value, now, rate: last ? last.rate : 0 });
  if (!last || now - last.now < 200) return last ? last.rate : 0;
  const found = Math.max(0, (value - last.value) / (now - last.now) * 1000);
  before.get(key).rate = found;
  return found;
}

async function look() {
  if (asking || held || !token) return;
  asking = true;
  try {
    const [sources, queries, operators, summaries, parts, [schedule], queues] = await Promise.all(
      ["sources", "queries", "operators", "summaries", "synopses", "scheduler", "queues WHERE tuples > 0 AND kind <> 'unread'"]
        .map((name) => rows("SELECT * FROM nile_" + name)));
    const now = performance.now();
    table("sources", sources, (row) => [row.name, row.kind, count(row.tuples),
      row.kind === "live" ? count(rate("source " + row.name, row.tuples, now)) : "", count(row.late), count(row.shed),
      count(row.rejected), count(row.waiting), count(row.kept), bytes(row.memory)]);
    const by = Map.groupBy ? Map.groupBy(operators, (one) => one.query) : null;
    let since = performance.now();
    for (const row of queries) {
      query(row, by ? by.get(row.name) ?? [] : operators.filter((one) => one.query === row.name), now);
      if (performance.now() - since > 5) {  // a frame is not missed, however many there are
        await new Promise(requestAnimationFrame);
        since = performance.now();
      }
    }
    gone("queries", queries.map((row) => row.name ?? ""));
    for (const row of summaries) summary(row);
    gone("summaries", summaries.map((row) => row.name));
    scheduled(schedule, queues);
    const most = Math.max(1, ...parts.map((row) => row.memory ?? 0));
    table("memory", parts.filter((row) => row.memory).sort((a, b) => b.memory - a.memory).slice(0, 40),
      (row) => [few(row.of ?? ""), row.kind, count(row.tuples), bytes(row.memory), row.memory / most]);
    if (summaries.length && now - zonesAt > ZONES_EVERY) {
      zonesAt = now;
      const zones = await rows("SELECT * FROM nile_zones");
      for (const row of summaries) heat(row.name, zones.filter((zone) => zone.summary === row.name));
    }
    say($("state"), `${queries.length} standing queries, ${sources.length} streams and relations`);
    fault(null);
  } catch (error) {
    say($("state"), "not connected");
    fault(error);
  } finally { asking = false; }
}

function table(id, given, cells) {
  const body = $(id).tBodies[0], heads = $(id).tHead.rows[0].cells;
  while (body.rows.length > given.length) body.deleteRow(-1);
  given.forEach((row, at) => {
    const line = body.rows[at] ?? body.insertRow();
    cells(row).forEach((told, k) => {
      const cell = line.cells[k] ?? line.insertCell();
      cell.className = heads[k].className;
      if (typeof told !== "number") return say(cell, told);
      if (!cell.firstChild) cell.append(make("div", { class: "bar" }, make("i")));
      cell.firstChild.firstChild.style.width = (100 * told).toFixed(1) + "%";
    });
  });
}

function gone(where, names) {
  for (const [key, one] of shown) {
    const [place, name] = JSON.parse(key);
    if (place === where && !names.includes(name)) { one.card.remove(); shown.delete(key); }
  }
}

function query(row, operators, now) {
  const name = row.name ?? "", key = JSON.stringify(["queries", name]);
  let one = shown.get(key);
  if (!one) {
    one = { facts: make("span"), tag: make("span", { class: "tag" }, "paused"), toggle: make("button"), nodes: new Map() };
    one.code = make("code"); one.worth = make("p", { class: "note" }); one.plan = make("div", { class: "wide" });
    one.way = make("select", { "aria-label": "how what expires is told: the scheduling of the plan" });
    one.way.append(...["nta", "tpa", "ita"].map((each) => make("option", {}, each)));
    one.budget = make("input", { type: "number", min: 0.01, max: 99, step: "any", size: 6, "aria-label": "budget of " + name + ", % of its exact work" });
    one.budgeting = make("form", { class: "inline" }, make("label", {}, "Budget, % of exact work", one.budget), make("button", {}, "Set"));
    one.budgeting.onsubmit = (event) => {
      event.preventDefault();
      set("nile_queries", name, { budget: String(one.budget.value / 100) }, { budget: String(one.granted) });
    };
    one.line = make("path", { class: "line" });
    one.spark = make("svg", { class: "spark", width: 120, height: 22, viewBox: "0 0 120 22", role: "img", "aria-label": "outputs a second, the last two minutes" });
    one.spark.append(one.line);
    one.rates = [];
    one.card = make("details", shown.size < 4 ? { open: "" } : {}, make("summary", {}, make("b", {}, name || "(no name)"), one.tag,
      one.facts, one.spark), one.code, make("div", { class: "controls" }, one.toggle, one.way, one.budgeting), one.worth, one.plan);
    one.card.dataset.query = name;
    one.toggle.disabled = !name;
    one.toggle.onclick = () => set("nile_queries", name, { active: String(!one.active) }, { active: String(one.active) });
    one.way.onchange = async () => {
      await set("nile_queries", name, { scheduling: quoted(one.way.value) }, { scheduling: quoted(one.scheduling) });
      one.way.value = one.scheduling;  // what was refused is not shown
    };
    shown.set(key, one);
    $("queries").append(one.card);
  }
  one.budgeting.hidden = !name || row.budget === null;
  if (one.granted !== row.budget) { one.granted = row.budget; one.budget.value = row.budget === null ? "" : +(100 * row.budget).toPrecision(6); }
  one.way.hidden = !name || row.scheduling === null;
  if (one.scheduling !== row.scheduling) one.way.value = one.scheduling = row.scheduling;
  one.active = row.active;
  one.tag.hidden = row.active;
  say(one.toggle, row.active ? "Pause" : "Resume");
  const speed = rate(key, row.outputs, now);
  if (one.rates.push(speed) > 120) one.rates.shift();
  const top = Math.max(1, ...one.rates);
  one.line.setAttribute("d", "M" + one.rates.map((each, k) => `${120 - one.rates.length + k},${(20.5 - 19 * each / top).toFixed(1)}`).join("L"));
  say(one.facts, `${count(row.outputs)} outputs, ${count(speed)} a second; ${bytes(row.memory)}` +
    (row.waiting ? `; ${count(row.waiting)} tuples wait` : "") + `; ${count(row.unread)} kept for readers`);
  if (!one.card.open) return;
  say(one.code, row.query ?? "");
  say(one.worth, row.asked === 1 && row.spent === 1 ? "exact" : `asked ${row.asked} ${row.unit}, spent ${row.spent.toPrecision(4)}; ` +
    `coverage ${row.coverage.toPrecision(3)}; the exact answer has ${count(row.estimate)} outputs (${count(row.low)} ${row.high === null ? "or more" : "to " + count(row.high)})`);
  plan(one, operators, key, now);
}

// The tree of operators, the root at the right; paths are places among inputs.
function plan(one, operators, key, now) {
  const nodes = operators.filter((each) => each.path !== null).map((each) => ({ ...each, at: each.path === "" ? [] : each.path.split(".") }));
  const shape = nodes.map((each) => each.path + each.operator).join("|");
  const deep = Math.max(0, ...nodes.map((each) => each.at.length));
  if (one.shape !== shape) {
    one.shape = shape;
    one.nodes.clear();
    const inputs = (each) => nodes.filter((other) => other.at.length === each.at.length + 1 && each.at.every((step, k) => other.at[k] === step));
    let next = 0;
    const place = (each) => {
      const below = inputs(each).map(place);
      each.row = below.length ? (below[0] + below.at(-1)) / 2 : next++;
      return each.row;
    };
    nodes.filter((each) => !each.at.length).forEach(place);
    const x = (each) => (deep - each.at.length) * (BOX.w + BOX.gapX), y = (each) => each.row * (BOX.h + BOX.gapY) + 2;
    const wide = (deep + 1) * (BOX.w + BOX.gapX) - BOX.gapX, high = Math.max(1, next) * (BOX.h + BOX.gapY);
    const drawing = make("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, style: `min-width: ${Math.round(0.93 * wide)}px`, role: "img", "aria-label": "plan: " + nodes.map((each) => each.operator).join(", ") });
    for (const each of nodes) {
      for (const input of inputs(each)) {
        const from = [x(input) + BOX.w, y(input) + BOX.h / 2], to = [x(each), y(each) + BOX.h / 2];
        const line = make("path", { d: `M${from} C${from[0] + 20},${from[1]} ${to[0] - 20},${to[1]} ${to}` });
        one.nodes.set("to " + input.path, line);
        drawing.append(line);
      }
      const parts = { name: text(x(each) + 8, y(each) + 18), flow: text(x(each) + 8, y(each) + 36, "soft"), memory: text(x(each) + 8, y(each) + 53, "soft") };
      one.nodes.set(each.path, parts);
      drawing.append(make("g", {}, make("rect", { x: x(each), y: y(each), width: BOX.w, height: BOX.h, rx: 5 }), ...Object.values(parts)));
    }
    one.plan.replaceChildren(drawing);
  }
  for (const each of nodes) {
    const parts = one.nodes.get(each.path), flow = rate(key + " operator " + each.path, each.tuples, now);
    say(parts.name, each.operator.length > 24 ? each.operator.slice(0, 23) + "…" : each.operator);
    say(parts.flow, `${brief(each.tuples)} in (${brief(flow)}/s), ${brief(each.positive - each.negative)} out`);
    say(parts.memory, (each.negative ? `${brief(each.negative)} taken back; ` : "") + bytes(each.memory));
    one.nodes.get("to " + each.path)?.setAttribute("stroke-width", Math.min(7, 1 + Math.log10(1 + flow)));
  }
}

// What runs next where not all can, and what waits meanwhile.
let schedule = {};
const WAITS = { order: "its turn in time", paused: "the query to go on", input: "its first operator", operator: "an operator" };
function scheduled(row, queues) {
  const given = [row.scheduler, row.quantum, row.latency], milli = (seconds) => +(1000 * seconds).toPrecision(6);
  if (String(given) !== String(schedule.given)) {
    $("policy").value = row.scheduler ?? "";
    $("quantum").value = row.quantum === null ? "" : milli(row.quantum);
    $("latency").value = milli(row.latency);
    allowed();
  }
  schedule = { ...row, given };
  say($("queued"), row.scheduler === null ? "A push is worked on query by query until nothing waits." :
    `${count(row.tuples)} tuples wait for operators (${bytes(row.memory)}; at most it was ${bytes(row.peak)})`);
  const most = Math.max(1, ...queues.map((each) => each.tuples));
  $("queues").hidden = !queues.length;
  table("queues", queues.sort((a, b) => b.tuples - a.tuples).slice(0, 40), (each) => [few(each.of ?? ""), WAITS[each.kind] ?? each.kind,
    each.path === "" ? "root" : each.path ?? "", count(each.tuples), bytes(each.memory), each.tuples / most]);
}
const allowed = () => {  // what only some of the policies know
  $("quantum").disabled = !$("policy").value;
  $("latency").disabled = $("policy").value !== "chain-latency";
};
$("policy").onchange = allowed;
$("scheduler").onsubmit = async (event) => {
  event.preventDefault();
  const said = (name, quantum, latency) => ({ scheduler: name ? quoted(name) : "NULL", quantum: name && quantum ? String(quantum) : "NULL", latency: String(latency) });
  const seconds = (id) => Number($(id).value) / 1000;
  await set("nile_scheduler", "standing queries", said($("policy").value, seconds("quantum"), seconds("latency")),
    said(schedule.scheduler, schedule.quantum, schedule.latency));
  schedule.given = null;  // what was refused is not shown
};

function summary(row) {
  const key = JSON.stringify(["summaries", row.name]);
  let one = shown.get(key);
  if (!one) {
    one = { facts: make("p", { class: "note" }), heat: make("canvas"), from: make("span"), to: make("span"), best: make("p", { class: "best" }) };
    one.input = make("input", { type: "number", min: 1024, step: 1, "aria-label": "bytes of counters of " + row.name });
    const form = make("form", {}, make("label", {}, "Counters, bytes", one.input), make("button", {}, "Set"));
    form.onsubmit = (event) => { event.preventDefault(); set("nile_summaries", row.name, { memory: one.input.value }, { memory: String(one.memory) }); };
    one.card = make("div", { class: "card" }, make("b", {}, `${row.name}: ${row.stream} (${row.column})`), one.facts, one.heat,
      make("div", { class: "axis" }, one.from, make("span", { class: "legend" }, "none", make("i"), "most"), one.to), one.best, form);
    one.card.dataset.summary = row.name;
    shown.set(key, one);
    heats.set(row.name, one);
    $("summaries").append(one.card);
  }
  one.memory = row.memory;
  if (!one.input.value) one.input.value = row.memory ?? "";
  say(one.facts, `${count(row.tuples)} tuples in ${row.zones ?? 0} zones, ${row.changes ?? 0} of which ended because the stream changed; ` +
    `a count errs by ${row.error === null ? "?" : count(row.error)}; ${bytes(row.memory)}; it served ${row.served} queries`);
}

function heat(name, regions) {
  const one = heats.get(name);
  if (!one || !regions.length) return;
  one.regions = regions;
  const time = (told) => Date.parse(told.replace(" ", "T").replace(/(\.\d{3})\d*/, "$1") + (/[Z+]/.test(told) ? "" : "Z"));
  const zones = [...new Set(regions.map((each) => each.zone))], places = new Map();
  regions.forEach((each) => { if (!places.has(each.zone)) places.set(each.zone, { first: time(each.first), last: time(each.last), of: each.granularity }); });
  const order = zones.filter((each) => { const zone = places.get(each); return Number.isFinite(zone.first); })
    .sort((a, b) => places.get(a).first - places.get(b).first || places.get(b).of - places.get(a).of);
  const buckets = 1 + Math.max(...regions.map((each) => each.bucket));
  const promise = (each) => each.most / Math.max(1, (places.get(each.zone).last - places.get(each.zone).first) / 1000);
  const most = Math.max(1e-9, ...regions.map(promise));
  const scale = window.devicePixelRatio || 1, wide = one.heat.clientWidth * scale, high = one.heat.clientHeight * scale;
  if (one.heat.width !== wide || one.heat.height !== high) { one.heat.width = wide; one.heat.height = high; }
  const pen = one.heat.getContext("2d"), dark = matchMedia("(prefers-color-scheme: dark)").matches;
  pen.clearRect(0, 0, wide, high);
  const w = wide / order.length, h = high / buckets, at = new Map(order.map((zone, k) => [zone, k]));
  for (const each of regions) {
    const k = at.get(each.zone);
    if (k === undefined) continue;
    const part = Math.sqrt(promise(each) / most);
    pen.fillStyle = `hsl(${190 - 160 * part} 70% ${dark ? 12 + 50 * part : 97 - 45 * part}%)`;
    pen.fillRect(k * w, each.bucket * h, w - Math.min(1, w / 4), h - Math.min(1, h / 4));
  }
  const best = regions.filter((each) => at.has(each.zone)).sort((a, b) => promise(b) - promise(a))[0];
  const moment = (ms) => new Date(ms).toISOString().slice(0, 19).replace("T", " ");
  if (!best) return;
  pen.strokeStyle = dark ? "#fff" : "#000"; pen.lineWidth = 2 * scale;
  pen.strokeRect(at.get(best.zone) * w + 1, best.bucket * h + 1, w - 3, h - 3);
  say(one.from, moment(places.get(order[0]).first));
  say(one.to, moment(places.get(order.at(-1)).last));
  const told = `Most promising: bucket ${best.bucket} of zone ${best.zone} (G${best.granularity}), ${moment(places.get(best.zone).first)} to ` +
    `${moment(places.get(best.zone).last)}: ${count(best.tuples)} tuples, at most ${count(best.most)} of one key.`;
  say(one.best, told);
  one.heat.setAttribute("role", "img");
  one.heat.setAttribute("aria-label", told);
}

const again = () => { for (const [name, one] of heats) if (one.regions) heat(name, one.regions); };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
addEventListener("resize", again);

// to, was: values by column, as SQL writes them.
async function set(what, name, to, was) {
  const values = Object.entries(to).map(([column, value]) => `${column} = ${value}`).join(", ");
  try {
    await ask("/sql", "POST", { sql: `UPDATE ${what} SET ${values} WHERE name = ${quoted(name)}` });
    if (was !== undefined) { undoes.push([what, name, was]); $("undo").disabled = false; }
    await look();
  } catch (error) { fault(error); }
}

$("undo").onclick = async () => {
  const last = undoes.pop();
  $("undo").disabled = !undoes.length;
  if (last) await set(...last);
};
$("hold").onclick = () => {
  held = !held;
  $("hold").setAttribute("aria-pressed", held);
};
$("login").onsubmit = (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  sessionStorage.setItem("nile-token", token);
  $("login").hidden = true;
  look();
};
$("register").onsubmit = async (event) => {
  event.preventDefault();
  try {
    await ask("/queries/" + encodeURIComponent($("name").value), "PUT", { sql: $("query").value });
    $("register").reset();
    fault(null);
    await look();
  } catch (error) { fault(error); }
};
addEventListener("keydown", (event) => {
  if (event.target.closest("input, button, summary") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === " ") { event.preventDefault(); $("hold").click(); }
  if (event.key === "u") $("undo").click();
  if (event.key === "n") { event.preventDefault(); $("name").focus(); }
});
if (token) sessionStorage.setItem("nile-token", token); else $("login").hidden = false;
look();
setInterval(look, EVERY);
