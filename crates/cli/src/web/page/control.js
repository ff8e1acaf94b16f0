// What an owner's page has besides: buttons that change something. The page of those who may
// look only does not load this file, and the server refuses what they ask for all the same.
"use strict";
const FalkonControl = (() => {
  const { element } = FalkonCharts;

  /** Has the server do something; what came of it, or why not, is read out from `note`. */
  const act = async (note, name, values) => {
    note.className = "note";
    note.textContent = "…";
    try {
      const response = await fetch(`/do/${name}?${new URLSearchParams(values)}`, { method: "POST" });
      if (response.status === 401) location.reload();
      if (!response.ok) throw new Error((await response.text()).trim());
      note.textContent = (await response.json()).said;
      return true;
    } catch (error) {
      note.className = "bad";
      note.textContent = error.message;
      return false;
    }
  };

  const button = (text, press) => {
    const made = element("button", { type: "button" }, text);
    made.addEventListener("click", async () => {
      // It keeps the focus, and a second press waits for the end of the first.
      if (made.ariaDisabled === "true") return;
      made.ariaDisabled = "true";
      await press(made);
      made.ariaDisabled = "false";
    });
    return made;
  };

  /** The buttons of an instance, as it was when somebody opened it. */
  const ofInstance = (one) => {
    const note = element("p", { role: "status", class: "note" });
    const instance = one.id;
    let isPaused = one.paused;
    const pauseText = () => isPaused ? "Resume" : "Pause";
    const pause = button(pauseText(), async () => {
      if (!await act(note, isPaused ? "resume" : "pause", { instance })) return;
      isPaused = !isPaused;
      pause.textContent = pauseText();
    });
    const priority = element("input", { name: "priority", type: "number", step: "1", required: "",
      min: "-2147483648", max: "2147483647", value: one.priority });
    const form = element("form", { class: "filter" }, element("label", {}, "Priority ", priority),
      element("button", {}, "Set"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      act(note, "prioritize", { instance, priority: priority.value });
    });
    const retry = button("Retry failed tasks", () => act(note, "retry", { instance }));
    const cancel = button("Cancel", async () => {
      const question = `Cancel instance ${instance}? Its tasks that have not ended will not ` +
        "run, those that run are killed, and it accepts no more.";
      if (window.confirm(question)) await act(note, "cancel", { instance });
    });
    return element("div", { id: "control", role: "group", "aria-label": `Control of instance ${instance}` },
      element("div", { class: "pager" }, pause, retry, cancel), form, note);
  };

  const executorNote = element("p", { id: "executors-done", role: "status", class: "note" });

  /** Drains an executor, or ends that. */
  const drain = (one) => act(executorNote, one.drained ? "undrain" : "drain", { executor: one.id });

  return { ofInstance, executorNote, drain };
})();
