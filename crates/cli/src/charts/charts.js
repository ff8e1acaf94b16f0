// Draws the charts of Falkon's pages with uPlot: axes with units, keys and a table for who does
// not see the drawing, and the colours of page.css in light and dark.
//
// A chart is described by plain data:
//   title, unit   what is drawn, and in what
//   across        "elapsed": seconds from the start, or "clock": seconds since 1970
//   kind          "lines", or "stacked": areas on top of each other
//   most          the top of the vertical axis, if it is fixed
//   lines         name, x, y (as many as x; null where nothing is known), and
//                 bound: a limit, not a measurement; steps: a mean over the time since the x before
// `FalkonCharts.draw(figure, chart)` draws into a <figure>, and gives an object whose
// `update(chart)` draws other values. Figures with their data inside are drawn by themselves.
"use strict";
const FalkonCharts = (() => {
  const COLOURS = 8;
  const HEIGHT = 240;
  const ROWS_MAX = 2000;

  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  /** A number for people: four digits, thousands apart. */
  const number = (value) => {
    if (value === null || value === undefined || !isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size !== 0 && size < 0.001) return value.toExponential(2);
    const digits = size >= 1000 ? 0 : Math.max(0, 3 - Math.floor(Math.log10(Math.max(size, 0.001))));
    return value.toLocaleString("en", { maximumFractionDigits: Math.min(digits, 6) });
  };

  /** The numbers at an axis: as many decimals as tell them apart, and a letter for thousands. */
  const ticks = (values, unit = 1) => {
    const numbers = values.filter((value) => value !== null).map((value) => value / unit);
    const most = Math.max(...numbers.map(Math.abs), 0);
    const [scale, letter] = most >= 1e12 ? [1e12, "T"] : most >= 1e9 ? [1e9, "G"]
      : most >= 1e6 ? [1e6, "M"] : most >= 1e4 ? [1e3, "k"] : [1, ""];
    const step = numbers.length > 1 ? Math.abs(numbers[1] - numbers[0]) / scale : 1;
    const decimals = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
    const exact = (value) => {
      for (let digits = decimals; digits < decimals + 2; digits += 1) {
        if (Math.abs(Number(value.toFixed(digits)) - value) <= step * 1e-6) return digits;
      }
      return decimals + 2;
    };
    const digits = Math.max(...numbers.map((value) => exact(value / scale)), 0);
    return values.map((value) => value === null ? "" : value === 0 ? "0"
      : (value / unit / scale).toFixed(digits) + letter);
  };

  /** In which unit a time of so many seconds is read best. */
  const timeUnit = (seconds) => seconds <= 0.2 ? [0.001, "ms"] : seconds <= 600 ? [1, "s"]
    : seconds <= 36000 ? [60, "min"] : seconds <= 864000 ? [3600, "h"] : [86400, "d"];
  const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

  /** All x of a chart, and each line's values there. */
  const aligned = (lines) => {
    const [first, ...others] = lines.map((line) => line.x);
    const same = (x) => x.length === first.length && x.every((value, at) => value === first[at]);
    if (!first) return [[]];
    if (others.every(same)) return [first, ...lines.map((line) => line.y)];
    return uPlot.join(lines.map((line) => [line.x, line.y]));
  };

  const looks = (chart) => {
    let place = 0;
    return chart.lines.map((line) => {
      if (line.bound) return { colour: "--ink", dash: [2, 4] };
      place += 1;
      return { colour: `--c${(place - 1) % COLOURS}`, dash: place > COLOURS ? [6, 3] : undefined };
    });
  };

  class Drawing {
    constructor(figure, chart) {
      this.figure = figure;
      this.hidden = new Set();
      this.plot = element("div", { class: "plot", tabindex: "0", role: "group",
        "aria-roledescription": "chart" });
      this.legend = element("ul", { class: "legend" });
      this.spoken = element("p", { class: "unseen", "aria-live": "polite" });
      this.rows = element("div", { class: "wide", tabindex: "0", role: "group" });
      this.details = element("details", {}, element("summary", {}, "Numbers"), this.rows);
      figure.append(this.plot, this.legend, this.spoken, this.details);
      this.details.addEventListener("toggle", () => this.table());
      this.plot.addEventListener("keydown", (event) => this.key(event));
      new ResizeObserver(() => this.resize()).observe(this.plot);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
        this.uplot && this.uplot.redraw(false));
      this.update(chart);
    }

    /** Draws other values; lines that are hidden stay hidden. */
    update(chart) {
      const shape = (of) => of && JSON.stringify([of.title, of.unit, of.kind, of.most, of.across,
        of.lines.map((line) => [line.name, line.bound, line.steps])]);
      const isSame = shape(chart) === shape(this.chart);
      this.chart = chart;
      this.data = aligned(chart.lines);
      const [x] = this.data;
      const elapsed = x.length ? x[x.length - 1] - Math.min(0, x[0]) : 1;
      const unit = chart.across === "clock" ? [1, ""] : timeUnit(elapsed);
      const isOfUnit = this.unit && unit[1] === this.unit[1];
      this.unit = unit;
      if (!isSame) this.keys();
      if (this.uplot && isSame && isOfUnit) {
        // What somebody has zoomed into stays in sight.
        this.uplot.setData(this.ordered(), !this.isZoomed);
        if (this.isZoomed) this.uplot.redraw();
      } else this.make();
      this.describe();
      this.table();
      this.values(this.uplot ? this.uplot.cursor.idx : null);
    }

    /** The values as they are drawn: in a stack, each on top of those before it. */
    stacked() {
      const [x, ...values] = this.data;
      const { lines, kind } = this.chart;
      const shown = values.map((list, at) => this.hidden.has(lines[at].name) ? null : list);
      if (kind !== "stacked") return [x, ...shown.map((list) => list || x.map(() => null))];
      let below = null;
      return [x, ...shown.map((list, at) => {
        if (list === null) return x.map(() => null);
        if (lines[at].bound) return list;
        below = below === null ? list
          : list.map((value, place) => value === null ? null : value + (below[place] ?? 0));
        return below;
      })];
    }

    make() {
      if (this.uplot) this.uplot.destroy();
      this.isZoomed = false;
      const { chart } = this;
      const style = looks(chart);
      const isStacked = chart.kind === "stacked";
      const widest = (u, texts, axis) => {
        u.ctx.font = axis.font[0];
        const width = (text) => u.ctx.measureText(text).width / uPlot.pxRatio;
        return Math.max(0, ...(texts || []).map(width));
      };
      const [unit, unitName] = this.unit;
      const isClock = chart.across === "clock";
      const font = "12px system-ui, sans-serif";
      const axis = { stroke: () => css("--soft"), font, labelFont: font, labelSize: 18,
        grid: { stroke: () => css("--rule"), width: 1 },
        ticks: { stroke: () => css("--rule"), width: 1, size: 4 }, gap: 4 };
      const series = chart.lines.map((line, at) => ({
        label: line.name, width: line.bound ? 1.5 : 1.8, dash: style[at].dash, spanGaps: true,
        stroke: () => css(style[at].colour),
        fill: isStacked && !line.bound ? () => css(style[at].colour) : undefined,
        paths: line.steps ? uPlot.paths.stepped({ align: -1 }) : uPlot.paths.linear(),
        points: { show: (u) => u.data[0].length < 2 },
      }));
      // The last series is drawn on top: of a stack, the lowest, which hides no other.
      this.order = chart.lines.map((_, at) => at);
      if (isStacked) this.order.sort((a, b) =>
        (chart.lines[a].bound ? 1 : 0) - (chart.lines[b].bound ? 1 : 0) || b - a);
      const steps = [];
      for (let power = -9; power <= 15; power += 1) {
        for (const digit of [1, 2, 5]) steps.push(unit * digit * 10 ** power);
      }
      const options = {
        width: Math.max(this.plot.clientWidth, 120), height: HEIGHT,
        padding: [8, (u) => {
          const texts = u.axes[0]._values;
          return Math.ceil(widest(u, texts ? texts.slice(-1) : [], u.axes[0]) / 2) + 4;
        }, 0, 0],
        scales: {
          x: { time: isClock },
          y: { range: (_, __, most) =>
            [0, chart.most || (most > 0 ? uPlot.rangeNum(0, most, 0.05, true)[1] : 1)] },
        },
        axes: [
          { ...axis, ...(isClock ? { size: 26,
            values: (_, all) => all.map((value) => clock(value)), space: 70 }
            : { label: `time, ${unitName}`, size: 24, incrs: steps, space: 60,
              values: (_, all) => ticks(all, unit) }) },
          { ...axis, label: chart.unit, space: 36, values: (_, all) => ticks(all),
            size: (u, texts, at, cycle) => cycle > 1 ? u.axes[at]._size
              : Math.ceil(widest(u, texts, u.axes[at])) + 10 },
        ],
        cursor: { y: false, drag: { x: true, y: false }, focus: { prox: 24 },
          points: { size: 7, fill: (_, at) => `var(${style[this.order[at - 1]].colour})` } },
        series: [{}, ...this.order.map((at) => series[at])],
        hooks: {
          setCursor: [(u) => this.values(u.cursor.idx)],
          setSelect: [(u) => { if (u.select.width > 0) this.isZoomed = true; }],
        },
      };
      this.plot.replaceChildren();
      this.uplot = new uPlot(options, this.ordered(), this.plot);
      this.uplot.over.addEventListener("dblclick", () => { this.isZoomed = false; });
    }

    ordered() {
      const [x, ...values] = this.stacked();
      return [x, ...this.order.map((at) => values[at])];
    }

    resize() {
      const width = this.plot.clientWidth;
      if (this.uplot && width > 0 && Math.abs(width - this.uplot.width) >= 1) {
        this.uplot.setSize({ width, height: HEIGHT });
      }
    }

    keys() {
      const style = looks(this.chart);
      this.outputs = [];
      this.legend.replaceChildren(...this.chart.lines.map((line, at) => {
        const key = element("span", { class: style[at].dash ? "key dashed" : "key" });
        key.style.borderColor = `var(${style[at].colour})`;
        const value = element("span", { class: "value" });
        this.outputs.push(value);
        const button = element("button", { type: "button",
          "aria-pressed": String(!this.hidden.has(line.name)) }, key, line.name, value);
        button.addEventListener("click", () => {
          if (!this.hidden.delete(line.name)) this.hidden.add(line.name);
          button.setAttribute("aria-pressed", String(!this.hidden.has(line.name)));
          this.uplot.setData(this.ordered(), !this.isZoomed);
          if (this.isZoomed) this.uplot.redraw();
        });
        return element("li", {}, button);
      }));
    }

    /** A time as it is read. */
    when(seconds) {
      if (this.chart.across === "clock") return clock(seconds);
      return `${number(seconds / this.unit[0])} ${this.unit[1]}`;
    }

    /** Shows the values at a place beside the names of their lines. */
    values(at) {
      const [x, ...lists] = this.data;
      const place = at === null || at === undefined ? x.length - 1 : Math.min(at, x.length - 1);
      this.outputs.forEach((output, line) => {
        output.textContent = place < 0 ? "" : number(lists[line][place]);
      });
      this.place = place;
    }

    key(event) {
      if (event.target !== this.plot) return;
      const [x] = this.data;
      const last = x.length - 1;
      const { min, max } = this.uplot.scales.x;
      const zoom = (factor) => {
        const middle = x[this.place] ?? (min + max) / 2;
        this.isZoomed = true;
        this.uplot.setScale("x", { min: middle - (middle - min) * factor,
          max: middle + (max - middle) * factor });
      };
      const far = Math.max(1, Math.round(last / 20));
      const moves = { ArrowLeft: -1, ArrowRight: 1, PageDown: -far, PageUp: far, Home: -last,
        End: last };
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key in moves && last >= 0) {
        const place = Math.min(last, Math.max(0, this.place + moves[event.key]));
        this.uplot.setCursor({ left: this.uplot.valToPos(x[place], "x"), top: 10 });
        this.values(place);
        this.spoken.textContent = `${this.when(x[place])}: ${this.chart.lines.map((line, at) =>
          `${line.name} ${number(this.data[at + 1][place])}`).join(", ")} ${this.chart.unit}`;
      } else if (event.key === "+") zoom(0.5);
      else if (event.key === "-") zoom(2);
      else if (event.key === "Escape" || event.key === "0") {
        this.isZoomed = false;
        this.uplot.setData(this.ordered(), true);
      } else return;
      event.preventDefault();
    }

    /** What a screen reader says of the drawing. */
    describe() {
      const { title, unit, lines } = this.chart;
      const parts = lines.map((line) => {
        const known = line.y.filter((value) => value !== null);
        if (!known.length) return `${line.name}: nothing yet`;
        const [least, most] = known.reduce(([a, b], y) => [Math.min(a, y), Math.max(b, y)],
          [Infinity, -Infinity]);
        return `${line.name}: ${number(least)} to ${number(most)}, at the end ` +
          number(known[known.length - 1]);
      });
      this.plot.setAttribute("aria-label", `${title}, in ${unit}, over time. ${parts.join("; ")}. ` +
        "Arrow keys move through the values, plus and minus zoom, escape shows all.");
      this.rows.setAttribute("aria-label", `${title}, as numbers`);
    }

    /** The values as a table, once somebody wants to see it. */
    table() {
      if (!this.details.open) return;
      const [x, ...lists] = this.data;
      const names = ["time", ...this.chart.lines.map((line) => line.name)];
      const head = element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)));
      const step = Math.max(1, Math.ceil(x.length / ROWS_MAX));
      const rows = x.map((at, place) => place).filter((place) => place % step === 0);
      this.rows.replaceChildren(element("table", {}, element("thead", {}, head),
        element("tbody", {}, ...rows.map((place) => element("tr", {},
          element("th", { scope: "row" }, this.when(x[place])),
          ...lists.map((list) => element("td", {}, number(list[place]))))))));
    }
  }

  const draw = (figure, chart) => new Drawing(figure, chart);
  addEventListener("DOMContentLoaded", () => {
    for (const figure of document.querySelectorAll("figure.chart")) {
      const data = figure.querySelector('script[type="application/json"]');
      if (data) draw(figure, JSON.parse(data.textContent));
    }
  });
  return { draw, number, ticks, element };
})();
