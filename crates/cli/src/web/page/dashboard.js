// The dispatcher's page. Once a second the server sends how things are; lists and charts are
// asked for. Names come from users: they become text, never markup.
"use strict";
(() => {
  const { draw, element } = FalkonCharts;
  // The buttons of an owner's page; the page of those who may look only has none.
  const control = typeof FalkonControl === "undefined" ? null : FalkonControl;
  const at = (id) => document.getElementById(id);
  const count = (value) => Number(value).toLocaleString("en");
  const few = (value) => FalkonCharts.number(value);
  const bytes = (value) => {
    const units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let place = 0;
    while (value >= 1000 && place < units.length - 1) { value /= 1000; place += 1; }
    return `${place ? value.toPrecision(3) : value} ${units[place]}`;
  };
  const span = (seconds) => seconds < 0.001 ? `${few(seconds * 1e6)} µs`
    : seconds < 1 ? `${few(seconds * 1e3)} ms` : seconds < 120 ? `${few(seconds)} s`
    : seconds < 7200 ? `${few(seconds / 60)} min` : seconds < 172800 ? `${few(seconds / 3600)} h`
    : `${few(seconds / 86400)} d`;
  // Sweden writes dates in their order; the browser's own time zone, as in charts.
  const time = (seconds) => new Date(seconds * 1000).toLocaleString("sv-SE", { year: "numeric",
    month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    fractionalSecondDigits: 3 }).replace(",", ".");

  /** Asks the server; the text of a refusal is the error. */
  const ask = async (name, values = {}) => {
    const query = new URLSearchParams();
    for (const [key, value] of Object.entries(values)) {
      if (value !== "" && value !== undefined && value !== null) query.set(key, value);
    }
    const response = await fetch(`/api/${name}?${query}`);
    if (response.status === 401) location.reload();
    if (!response.ok) throw new Error((await response.text()).trim());
    return response.json();
  };

  /** A table whose rows stay while their items do, so that nobody loses their place in it. */
  class Table {
    constructor(table, columns, empty) {
      this.table = table;
      this.columns = columns;
      this.rows = new Map();
      const head = columns.map((column) => element("th",
        { scope: "col", class: column.kind || "" }, column.title));
      this.body = element("tbody");
      this.empty = element("caption", { class: "note" }, empty);
      table.append(element("thead", {}, element("tr", {}, ...head)), this.body);
    }

    show(items, keyOf) {
      const rows = new Map();
      items.forEach((item, place) => {
        const key = keyOf(item);
        const row = this.rows.get(key) || this.row();
        rows.set(key, row);
        row.item = item;
        this.columns.forEach((column, cell) => {
          const text = String(column.text(item) ?? "");
          const target = row.cells[cell].target;
          if (target.textContent !== text) target.textContent = text;
          if (column.label) target.setAttribute("aria-label", column.label(item));
          if (column.look) {
            target.className = `${target.base} ${column.look(item) || ""}`;
          }
        });
        if (this.body.children[place] !== row) this.body.insertBefore(row, this.body.children[place] || null);
      });
      for (const [key, row] of this.rows) if (!rows.has(key)) row.remove();
      this.rows = rows;
      if (items.length) this.empty.remove();
      else if (!this.empty.isConnected) this.table.prepend(this.empty);
    }

    row() {
      const row = element("tr");
      this.columns.forEach((column, place) => {
        const cell = element(place === 0 ? "th" : "td",
          place === 0 ? { scope: "row" } : { class: column.kind || "" });
        cell.target = cell;
        if (column.act) {
          cell.target = element("button", { type: "button", class: "link" });
          cell.target.addEventListener("click", () => column.act(row.item));
          cell.append(cell.target);
        } else if (column.kind === "words") {
          cell.target = element("span", { class: "clamp" });
          cell.append(cell.target);
        }
        cell.target.base = cell.target.className;
        row.append(cell);
      });
      return row;
    }
  }

  /** Buttons to turn pages, and where one is. */
  class Pager {
    constructor(place, size, turned) {
      this.from = 0;
      this.size = size;
      this.note = element("span");
      this.back = element("button", { type: "button" }, "Previous");
      this.on = element("button", { type: "button" }, "Next");
      this.back.addEventListener("click", () => { this.from = Math.max(0, this.from - size); turned(); });
      this.on.addEventListener("click", () => { this.from += size; turned(); });
      place.append(this.back, this.on, this.note);
    }

    show(all) {
      if (this.from >= all) this.from = Math.max(0, Math.floor((all - 1) / this.size) * this.size);
      this.back.disabled = this.from === 0;
      this.on.disabled = this.from + this.size >= all;
      this.note.textContent = all === 0 ? "" :
        `${count(this.from + 1)} to ${count(Math.min(all, this.from + this.size))} of ${count(all)}`;
    }
  }

  // Overview

  const STATES = ["done", "failed", "cancelled", "running", "staged", "sent", "ready", "waiting"];
  const NAMES = { sent: "sent ahead", staged: "outputs staged" };
  const numbers = new Map();
  const number = (title, text) => {
    let shown = numbers.get(title);
    if (!shown) {
      shown = element("dd");
      numbers.set(title, shown);
      at("numbers").append(element("div", {}, element("dt", {}, title), shown));
    }
    if (shown.textContent !== text) shown.textContent = text;
  };
  const parts = new Map();
  const bar = (tasks) => {
    for (const state of STATES) {
      let part = parts.get(state);
      if (!part) {
        part = { piece: element("span", { class: `bar-${state}` }), value: element("span", { class: "value" }) };
        parts.set(state, part);
        at("bar").append(part.piece);
        at("bar-legend").append(element("li", {},
          element("span", { class: `swatch bar-${state}` }), NAMES[state] || state, part.value));
      }
      part.piece.style.width = `${tasks.total ? tasks[state] * 100 / tasks.total : 0}%`;
      part.value.textContent = count(tasks[state]);
    }
    at("bar").setAttribute("aria-label", `Tasks by state: ${STATES.filter((state) => tasks[state])
      .map((state) => `${count(tasks[state])} ${NAMES[state] || state}`).join(", ") || "none"}`);
  };

  // Charts

  const SCALES = ["10 minutes", "2 hours", "1 day", "2 weeks"];
  const COLUMNS = ["at", "submitted", "done", "failed", "cancelled", "run_s", "staging_s", "own",
    "peer", "store", "queued", "assigned", "executors", "cpus", "offered_s", "taken_s",
    "idle_while_waiting_s"];
  const INTERVALS = 720;
  let scale = 0;
  let past = null;
  const charts = {};
  const chart = (id, description) => {
    const whole = { across: "clock", kind: "lines", ...description };
    if (charts[id]) charts[id].update(whole);
    else charts[id] = draw(at(id), whole);
  };

  const drawAll = () => {
    // The last interval is not over.
    const of = (name) => past[name].slice(0, -1);
    const x = of("at").map((begin) => begin + past.seconds);
    const rate = (list, unit = 1) => list.map((value) => value / past.seconds / unit);
    const line = (name, y, more = {}) => ({ name, x, y, steps: true, ...more });
    const done = of("done");
    const [failed, cancelled] = [of("failed"), of("cancelled")];
    const ended = done.map((value, place) => value + failed[place] + cancelled[place]);
    chart("throughput", { title: "Throughput", unit: "tasks/s",
      lines: [line("ended", rate(ended)), line("of them failed", rate(failed))] });
    chart("queue", { title: "Tasks that have not ended", unit: "tasks", kind: "stacked",
      lines: [line("at executors", of("assigned")), line("waiting", of("queued"))] });
    const [ran, offered, taken, starved] = ["run_s", "offered_s", "taken_s", "idle_while_waiting_s"]
      .map((name) => rate(of(name)));
    const inside = ran.map((value, place) => Math.min(value, offered[place]));
    const there = taken.map((value, place) => Math.max(0, value - inside[place]));
    const empty = offered.map((value, place) =>
      Math.max(0, value - inside[place] - there[place] - starved[place]));
    chart("slots", { title: "Where the time of processors went", unit: "CPUs", kind: "stacked",
      lines: [line("ran tasks that have ended", inside),
        line("had tasks: staging, on their way, or running still", there),
        line("idle while tasks waited", starved), line("idle without tasks", empty)] });
    chart("nodes", { title: "Executors", unit: "executors",
      lines: [line("registered", of("executors"))] });
    chart("sources", { title: "Inputs by source", unit: "MB/s", kind: "stacked",
      lines: [line("own cache", rate(of("own"), 1e6)), line("other executors", rate(of("peer"), 1e6)),
        line("store", rate(of("store"), 1e6))] });
  };

  const more = async () => {
    const asked = scale;
    const since = past && past.at.length ? past.at[past.at.length - 1] : 0;
    const news = await ask("history", { scale, since });
    if (asked !== scale) return;
    if (!past) past = news;
    else {
      const kept = past.at.findIndex((begin) => begin >= (news.at[0] ?? Infinity));
      for (const name of COLUMNS) {
        const list = kept < 0 ? past[name] : past[name].slice(0, kept);
        past[name] = list.concat(news[name]).slice(-INTERVALS);
      }
    }
    if (past.at.length > 1) drawAll();
  };

  SCALES.forEach((name, place) => {
    const choice = element("input", { type: "radio", name: "scale", id: `scale-${place}` });
    choice.checked = place === scale;
    choice.addEventListener("change", () => { scale = place; past = null; more().catch(report); });
    at("scales").append(element("label", {}, choice, ` ${name}`));
  });

  // Lists

  const report = (error) => { at("state").textContent = error.message; };
  const words = (list) => list.map((word) => /^[\w./:=@%+,-]+$/.test(word) ? word
    : `'${word.replaceAll("'", "'\\''")}'`).join(" ");

  const instanceTable = new Table(at("instances-table"), [
    { title: "ID", text: (one) => one.id, act: (one) => openInstance(one.id) },
    { title: "Name", kind: "name", text: (one) => one.name || "–" },
    { title: "State", kind: "text", text: (one) => one.unschedulable.length ? `${one.state}, lacks executors` : one.state,
      look: (one) => one.unschedulable.length || one.state.startsWith("held") ? "warn" : "" },
    { title: "Tasks", text: (one) => count(one.tasks) },
    { title: "Waiting", text: (one) => count(one.waiting + one.ready) },
    { title: "Running", text: (one) => count(one.running) },
    { title: "Done", text: (one) => count(one.done) },
    { title: "Failed", text: (one) => count(one.failed), look: (one) => one.failed ? "bad" : "" },
    { title: "Cancelled", text: (one) => count(one.cancelled) },
    { title: "Tasks/s", text: (one) => few(one.rate) },
  ], "No instance: falkon submit makes one.");
  const instancePager = new Pager(at("instances-pager"), 20, () => showInstances().catch(report));
  const showInstances = async (known) => {
    const text = at("instances-form").elements.text.value;
    const found = known && !text && instancePager.from === 0 ? known
      : await ask("instances", { text, from: instancePager.from, count: 20 });
    instanceTable.show(found.shown, (one) => one.id);
    instancePager.show(found.count);
  };
  at("instances-form").addEventListener("input", () => { instancePager.from = 0; showInstances().catch(report); });

  const userTable = new Table(at("users-table"), [
    { title: "Name", kind: "name", text: (one) => one.name },
    { title: "State", kind: "text", text: (one) => one.revoked ? "revoked" : "", look: (one) => one.revoked ? "warn" : "" },
    { title: "Share", text: (one) => count(one.share) },
    { title: "Instances", text: (one) => count(one.instances) },
    { title: "Queued", text: (one) => count(one.queued) },
    { title: "Running", text: (one) => count(one.running) },
    { title: "Done", text: (one) => count(one.done) },
    { title: "Failed", text: (one) => count(one.failed), look: (one) => one.failed ? "bad" : "" },
    { title: "CPUs", text: (one) => one.cpus === null ? "–"
      : one.cpus_max === null ? few(one.cpus) : `${few(one.cpus)} of ${count(one.cpus_max)}` },
  ], "No users: falkon user add makes one.");

  const executorTable = new Table(at("executors-table"), [
    { title: "ID", text: (one) => one.id },
    { title: "Name", kind: "name", text: (one) => one.name, act: (one) => tasksOf({ executor: one.name }) },
    { title: "State", kind: "text", text: (one) => !one.connected ? "not connected" : one.suspended_until ? "suspended"
      : one.drained ? "drained" : one.nodes !== null ? `relay to ${count(one.nodes)} nodes` : one.tasks ? "busy" : "idle",
      look: (one) => !one.connected || one.suspended_until ? "bad" : one.drained ? "warn" : "" },
    { title: "CPUs", text: (one) => few(one.offers.cpus) },
    { title: "Free", text: (one) => few(one.free.cpus) },
    { title: "Tasks", text: (one) => count(one.tasks) },
    { title: "Ahead", text: (one) => count(one.prefetched) },
    { title: "Cache", text: (one) => one.cache ? `${bytes(one.cache.used_bytes)} of ${bytes(one.cache.capacity_bytes)}` : "–" },
    { title: "Objects", text: (one) => one.cache ? count(one.cache.objects) : "–" },
    ...(control ? [{ title: "Control", kind: "text", text: (one) => one.drained ? "Undrain" : "Drain",
      label: (one) => `${one.drained ? "Undrain" : "Drain"} executor ${one.id}, ${one.name}`,
      act: (one) => control.drain(one).then(() => showExecutors()).catch(report) }] : []),
  ], "No executor: falkon executor starts one.");
  if (control) at("executors-form").after(control.executorNote);
  const executorPager = new Pager(at("executors-pager"), 25, () => showExecutors().catch(report));
  const showExecutors = async () => {
    const { text, state } = at("executors-form").elements;
    const found = await ask("executors", { text: text.value, state: state.value,
      from: executorPager.from, count: 25 });
    executorTable.show(found.shown, (one) => one.id);
    executorPager.show(found.count);
  };
  for (const kind of ["input", "change"]) {
    at("executors-form").addEventListener(kind, () => { executorPager.from = 0; showExecutors().catch(report); });
  }

  const failureTable = new Table(at("failures-table"), [
    { title: "Tasks", text: (one) => count(one.count),
      act: (one) => tasksOf({ instance: one.instance, state: "failed" }) },
    { title: "How", kind: "text", text: (one) => one.how },
    { title: "Message", kind: "words", text: (one) => one.count === 1 ? one.error : one.message },
    { title: "Command", kind: "words", text: (one) => one.command },
    { title: "First", kind: "text", text: (one) => `${one.instance}/${one.first}`, act: (one) => openTask(one.instance, one.first) },
    { title: "Last at", kind: "text", text: (one) => time(one.until).slice(5, 19) },
    { title: "Where", kind: "words", text: (one) => one.executors.join(", ") },
  ], "No task has failed.");

  // Tasks

  const TASKS = 20;
  const taskTable = new Table(at("tasks-table"), [
    { title: "Task", text: (one) => one.index, act: (one) => openTask(shownTasks.instance, one.index) },
    { title: "State", kind: "text", text: (one) => one.state,
      look: (one) => ({ failed: "bad", cancelled: "warn", done: "good" })[one.state] || "" },
    { title: "Command", kind: "words", text: (one) => words(one.command) },
    { title: "Executor", kind: "name", text: (one) => one.executor || "–" },
    { title: "Ran", text: (one) => one.times && one.times.started !== null ? span(one.times.ended - one.times.started) : "–" },
    { title: "Status", text: (one) => one.exit_code ?? (one.signal ? `signal ${one.signal}` : "–") },
    { title: "Error", kind: "words", text: (one) => one.error || "" },
  ], "");
  let shownTasks = { instance: null, next: null, before: [] };
  const tasksForm = at("tasks-form");
  const taskBack = element("button", { type: "button" }, "Previous");
  const taskOn = element("button", { type: "button" }, "Next");
  at("tasks-pager").append(taskBack, taskOn);
  const showTasks = async (from) => {
    const { instance, state, command, executor } = tasksForm.elements;
    const note = at("tasks-note");
    if (instance.value === "") {
      note.textContent = "Say which instance.";
      return;
    }
    note.textContent = "looking …";
    const found = await ask("tasks", { instance: instance.value, state: state.value,
      command: command.value, executor: executor.value, from, count: TASKS });
    shownTasks = { ...shownTasks, instance: instance.value, from, next: found.next };
    taskTable.show(found.shown, (one) => one.index);
    taskBack.disabled = shownTasks.before.length === 0;
    taskOn.disabled = found.next === null;
    note.textContent = found.shown.length === 0
      ? `None of the ${count(found.looked)} tasks looked at${found.next === null ? "." : "; Next goes on."}`
      : found.next === null ? "The last ones." : "";
  };
  const begin = () => {
    shownTasks.before = [];
    return showTasks(Number(tasksForm.elements.from.value || 0)).catch((error) => {
      at("tasks-note").textContent = error.message;
    });
  };
  tasksForm.addEventListener("submit", (event) => { event.preventDefault(); begin(); });
  tasksForm.elements.state.addEventListener("change", begin);
  taskOn.addEventListener("click", () => {
    shownTasks.before.push(shownTasks.from);
    showTasks(shownTasks.next).catch(report);
  });
  taskBack.addEventListener("click", () => showTasks(shownTasks.before.pop()).catch(report));
  const tasksOf = (values) => {
    for (const name of ["state", "from", "command", "executor"]) {
      tasksForm.elements[name].value = values[name] ?? "";
    }
    if (values.instance !== undefined) tasksForm.elements.instance.value = values.instance;
    at("tasks").scrollIntoView();
    begin();
  };

  // One of them

  const detail = at("detail");
  const open = (title, ...content) => {
    at("detail-title").textContent = title;
    at("detail-body").replaceChildren(...content);
    if (!detail.open) detail.showModal();
  };
  const facts = (pairs) => element("table", {}, element("tbody", {}, ...pairs
    .filter(([, text]) => text !== undefined && text !== null && text !== "")
    .map(([name, text]) => element("tr", {}, element("th", { scope: "row" }, name),
      element("td", { class: "words" }, String(text))))));
  const openTask = async (instance, task) => {
    const name = `Task ${instance}/${task}`;
    try {
      const one = await ask("task", { instance, task });
      const { times } = one;
      const ran = times && times.started !== null;
      open(name, element("pre", {}, one.explained.trim()), facts([
        ["Command", words(one.command)],
        ["ID", one.id !== String(one.index) ? one.id : ""],
        ["Executor", one.executor],
        ["Accepted", times && time(times.queued)],
        ["Sent", ran && times.dispatched ? time(times.dispatched) : ""],
        ["Started", ran ? `${time(times.started)}, after ${span(times.started - times.queued)}` : ""],
        ["Ended", times && `${time(times.ended)}${ran ? `, after ${span(times.ended - times.started)}` : ""}`],
        ["Attempts", one.attempts],
      ]));
    } catch (error) {
      open(name, element("p", {}, error.message));
    }
  };
  const openInstance = async (instance) => {
    const name = `Instance ${instance}`;
    const list = element("button", { type: "button" }, "Its tasks");
    list.addEventListener("click", () => { detail.close(); tasksOf({ instance }); });
    try {
      const { explained } = await ask("explain", { instance });
      const { shown } = control ? await ask("instances", { id: instance }) : { shown: [] };
      open(name, element("pre", {}, explained.trim()), list, ...shown.map((one) => control.ofInstance(one)));
    } catch (error) {
      open(name, element("p", {}, error.message));
    }
  };

  // The timeline: a row for each executor, stronger where it did more; single tasks where they are few

  const ROWS = 20;
  const ROW_PIXELS = 18;
  const ruler = element("canvas").getContext("2d");
  const line = { plot: null, shown: null, from: null, until: null };
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const timelineTable = new Table(at("timeline-table"), [
    { title: "Executor", kind: "name", text: (row) => row.name },
    { title: "Tasks", text: (row) => count(row.ended) },
    { title: "Not well", text: (row) => count(row.failed) },
    { title: "Tasks at a time, mean", text: (row) => few(row.busy.reduce((a, b) => a + b, 0) / row.busy.length) },
    { title: "Most", text: (row) => few(Math.max(...row.busy)) },
  ], "No executor is known.");

  /** Draws the answer that is there; `plot` has places for times and rows. */
  const paint = (plot) => {
    const { shown } = line;
    const { ctx, bbox } = plot;
    const x = (seconds) => plot.valToPos(seconds, "x", true);
    const y = (row) => bbox.top + row * bbox.height / Math.max(1, shown.rows.length);
    const height = bbox.height / Math.max(1, shown.rows.length);
    const most = Math.max(1e-9, ...shown.rows.flatMap((row) => row.busy));
    const places = new Map(shown.rows.map((row, place) => [row.executor, place]));
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    if (shown.runs === null) {
      ctx.fillStyle = css("--c0");
      const width = (shown.until - shown.from) / shown.rows[0]?.busy.length;
      shown.rows.forEach((row, place) => row.busy.forEach((busy, bin) => {
        if (busy <= 0) return;
        ctx.globalAlpha = 0.15 + 0.85 * busy / most;
        const left = x(shown.from + bin * width);
        ctx.fillRect(left, y(place) + 1, x(shown.from + (bin + 1) * width) - left, height - 2);
      }));
    } else {
      // Tasks that overlap on an executor lie in lanes.
      const lanes = new Map();
      const placed = [...shown.runs].sort((a, b) => a.started - b.started).map((run) => {
        const ends = lanes.get(run.executor) || [];
        lanes.set(run.executor, ends);
        const free = ends.findIndex((end) => end <= run.started + 1e-9);
        const lane = free < 0 ? ends.length : free;
        ends[lane] = run.ended;
        return { run, lane };
      });
      // Styles are computed once: for each of thousands of boxes that takes longer than drawing it.
      const [good, bad] = [css("--c0"), css("--c7")];
      ctx.globalAlpha = 0.85;
      line.boxes = placed.map(({ run, lane }) => {
        const all = lanes.get(run.executor).length;
        const left = x(run.started);
        const box = { run, left, width: Math.max(1, x(run.ended) - left),
          top: y(places.get(run.executor)) + 1 + lane * (height - 2) / all, height: (height - 2) / all };
        ctx.fillStyle = run.good ? good : bad;
        ctx.fillRect(box.left, box.top, Math.max(1, box.width - 1), Math.max(1, box.height - 0.5));
        return box;
      });
    }
    ctx.restore();
  };

  const showTimeline = async () => {
    const note = at("timeline-note");
    note.textContent = "reading …";
    const shown = await ask("timeline", { from: line.from, until: line.until, row: timelinePager.from, count: ROWS });
    Object.assign(line, { shown, from: shown.from, until: shown.until, boxes: [] });
    const place = at("timeline-plot");
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: () => css("--soft"), font, grid: { stroke: () => css("--rule"), width: 1 },
      ticks: { stroke: () => css("--rule"), width: 1, size: 4 } };
    const names = shown.rows.map((row) => row.name.length > 18 ? `${row.name.slice(0, 17)}…` : row.name);
    ruler.font = font;
    const wide = Math.ceil(Math.max(20, ...names.map((name) => ruler.measureText(name).width))) + 14;
    const clock = (value) => time(value).slice(11, shown.until - shown.from < 10 ? 23 : 19);
    const rows = shown.rows.length;
    if (line.plot) line.plot.destroy();
    place.replaceChildren();
    line.plot = new uPlot({
      width: Math.max(place.clientWidth, 120),
      height: 34 + Math.max(2, shown.rows.length) * ROW_PIXELS,
      padding: [4, 34, 0, 0],
      scales: { x: { time: false, range: () => [shown.from, shown.until] },
        y: { auto: false, range: () => [0, Math.max(1, rows)] } },
      axes: [
        { ...axis, size: 26, space: 90, values: (_, all) => all.map(clock) },
        { ...axis, size: wide, gap: 4, splits: () => names.map((_, row) => row + 0.5),
          values: () => [...names].reverse(), grid: { show: false } },
      ],
      legend: { show: false },
      cursor: { y: false, drag: { x: true, y: false, setScale: false } },
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: { draw: [paint], setSelect: [(plot) => {
        if (plot.select.width < 4) return;
        const from = plot.posToVal(plot.select.left, "x");
        move(from, plot.posToVal(plot.select.left + plot.select.width, "x"));
      }] },
    }, [[shown.from, shown.until], [0, 0]], place);
    line.plot.over.addEventListener("dblclick", () => move(null, null));
    line.plot.over.addEventListener("click", (event) => {
      const [left, top] = [event.offsetX, event.offsetY].map((value) => value * uPlot.pxRatio);
      const { bbox } = line.plot;
      const found = line.boxes.find((box) => left + bbox.left >= box.left && left + bbox.left <= box.left + box.width
        && top + bbox.top >= box.top && top + bbox.top <= box.top + box.height);
      if (found) openTask(found.run.instance, found.run.first);
    });
    timelineTable.show(shown.rows, (row) => row.executor);
    at("timeline-details").hidden = false;
    timelinePager.show(shown.executors);
    for (const name of ["all", "in", "out", "left", "right"]) at(`timeline-${name}`).disabled = false;
    note.textContent = `${count(shown.tasks)} tasks on these executors in ${span(shown.until - shown.from)} from ` +
      `${time(shown.from)}, of those that had ended by ${time(shown.read).slice(11)}. ` +
      (shown.runs ? "Each box is a task, or several that ended alike; a click opens it." : "Stronger where more ran.");
  };
  const look = () => showTimeline().catch((error) => { at("timeline-note").textContent = error.message; });
  const move = (from, until) => { line.from = from; line.until = until; look(); };
  const timelinePager = new Pager(at("timeline-pager"), ROWS, look);
  at("timeline-show").addEventListener("click", () => move(null, null));
  at("timeline-all").addEventListener("click", () => move(null, null));
  const steps = { in: [0.25, -0.25], out: [-0.5, 0.5], left: [-0.5, -0.5], right: [0.5, 0.5] };
  for (const [name, [begin, end]] of Object.entries(steps)) {
    at(`timeline-${name}`).addEventListener("click", () => {
      const wide = line.until - line.from;
      move(Math.max(0, line.from + begin * wide), line.until + end * wide);
    });
  }
  new ResizeObserver(() => {
    const width = at("timeline-plot").clientWidth;
    if (line.plot && Math.abs(width - line.plot.width) >= 1) line.plot.setSize({ width, height: line.plot.height });
  }).observe(at("timeline-plot"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => line.plot && line.plot.redraw(false));

  /** The matrix of transfers: a row for who had bytes, a column for whom they came from. */
  let matrix = "";
  const showTransfers = (transfers) => {
    const { executors, store, rows, others, elsewhere } = transfers;
    const text = JSON.stringify(transfers);
    if (text === matrix) return;
    matrix = text;
    at("transfers-part").hidden = executors.length === 0 && elsewhere === 0;
    const columns = ["store", ...executors, "others"];
    const cells = rows.map((row, place) => [store[place], ...row, others[place]]);
    const most = Math.max(1, ...cells.flat());
    const head = columns.map((name) => element("th", { scope: "col" }, name));
    const body = cells.map((row, place) => element("tr", {},
      element("th", { scope: "row" }, executors[place]), ...row.map((value) => {
        const cell = element("td", {}, value === 0 ? "–" : bytes(value));
        const share = value === 0 ? 0 : 4 + Math.round(value * 26 / most);
        cell.style.background = `color-mix(in srgb, var(--c0) ${share}%, transparent)`;
        return cell;
      })));
    at("transfers-table").replaceChildren(
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Had by"), ...head)),
      element("tbody", {}, ...body));
    at("transfers-note").textContent = `Bytes from the store, and from the caches of other executors: those that ` +
      `moved most.${elsewhere ? ` Further ${bytes(elsewhere)} were had by others, or by and from executors that are gone.` : ""}`;
  };

  // What comes once a second

  const show = (board) => {
    const { tasks, executors, cpus, data, failures, events, transfers } = board;
    const state = board.lost ? `no answer from the dispatcher, trying again: ${board.lost}`
      : events.behind ? "live; reading what happened before" : "live";
    const shown = at("state");
    if (shown.textContent !== state) shown.textContent = state;
    shown.className = board.lost ? "bad" : "";
    const ended = tasks.done + tasks.failed + tasks.cancelled;
    number("Tasks", count(tasks.total));
    const percent = tasks.total ? ended * 100 / tasks.total : 0;
    // Not all before it is all.
    const most = ended < tasks.total ? 99.99 : 100;
    number("Ended", tasks.total ? `${count(ended)} (${few(Math.min(percent, most))} %)` : "0");
    number("Running", count(tasks.running));
    number("Waiting", count(tasks.waiting + tasks.ready));
    number("Failed", count(tasks.failed));
    number("Ending per second", few(board.rate));
    number("CPUs in use", `${few(cpus.used)} of ${few(cpus.all)}`);
    number("Executors", count(executors.connected));
    const left = tasks.total - ended;
    number("Left", left === 0 ? "nothing" : board.rate > 0 ? `about ${span(left / board.rate)}` : "–");
    number("Up", span(board.now - board.started));
    bar(tasks);
    at("no-events").hidden = events.kept;
    showInstances(board.instances).catch(report);
    at("users").hidden = board.users.length === 0;
    userTable.show(board.users, (one) => one.name);
    failureTable.show(failures.shown, (one) => [one.instance, one.command, one.how, one.message].join("\n"));
    at("failures-note").textContent = failures.classes > failures.shown.length || failures.others
      ? `${count(failures.classes)} kinds of failures; the ${failures.shown.length} that most tasks have. ` +
        (failures.others ? `${count(failures.others)} further failed tasks are of other kinds.` : "") : "";
    const notes = [`${count(executors.count)} registered`, `${count(executors.busy)} busy`,
      `${count(executors.idle)} idle`];
    if (executors.count > executors.connected) notes.push(`${count(executors.count - executors.connected)} not connected`);
    if (executors.suspended) notes.push(`${count(executors.suspended)} suspended`);
    if (executors.drained) notes.push(`${count(executors.drained)} drained`);
    if (executors.nodes) notes.push(`${count(executors.nodes)} nodes below relays`);
    at("executors-note").textContent = notes.join(", ");
    at("coming").replaceChildren(...board.coming.map((one) => element("li", {},
      `Queue ${one.queue}: ${one.nodes ? `${count(one.nodes)} nodes asked for` : "none asked for"}` +
      (one.reason ? ` (${one.reason})` : ""))));
    at("provisioned").hidden = board.provisioned.length === 0;
    at("provisioned").querySelector("ul").replaceChildren(...board.provisioned.map((one) =>
      element("li", {}, `${time(one.at).slice(5, 19)} ${one.queue}: ${one.text}`)));
    const inputs = data.own.objects + data.peer.objects + data.store.objects;
    const share = (part) => `${few(inputs ? part.objects * 100 / inputs : 0)} % (${bytes(part.bytes)})`;
    at("data-note").textContent = data.caches === 0 ? "No executor has a cache." :
      `${count(data.objects)} objects in ${count(data.caches)} caches, ${bytes(data.used_bytes)} of ` +
      `${bytes(data.capacity_bytes)}. ${inputs ? `Of ${count(inputs)} inputs read by executors that are here, ` +
      `${share(data.own)} came from the own cache, ${share(data.peer)} from other executors, ` +
      `${share(data.store)} from the store.` : ""}`;
    showTransfers(transfers);
    if (tasksForm.elements.instance.value === "" && board.instances.shown.length && !shownTasks.instance) {
      tasksForm.elements.instance.value = board.instances.shown[0].id;
      begin();
    }
    showExecutors().catch(report);
    if (events.kept) more().catch(report);
  };

  const source = new EventSource("/api/updates");
  source.addEventListener("message", (event) => show(JSON.parse(event.data)));
  source.addEventListener("error", async () => {
    at("state").textContent = "the connection is lost; trying again";
    at("state").className = "bad";
    // A browser that has been logged out is told how to log in.
    const answer = await fetch("/api/history?since=1e12").catch(() => null);
    if (answer && answer.status === 401) location.reload();
  });
  const named = /^#task\/(\d+)\/(\d+)$/.exec(location.hash);
  if (named) openTask(named[1], named[2]);
})();
