// Charts over time, the scatter of records, and what bars are filled with.

import { bytes, count, css, duration, el, none, refresh, short, state, svg, time } from "./elements.js";
import { WRITERS, twinTable } from "./tables.js";

export const DASHES = [[], [8, 4], [3, 3], [10, 3, 3, 3], [14, 4], [2, 5]];
export let charts = [];

export const AXES = {
  short: (u, values) => values.map(short),
  bytes: (u, values) => values.map(bytes),
  duration: (u, values) => values.map(duration),
  time: (u, values) => values.map((value) => tick(value, values)),
};
/** Steps between lines of an axis of durations or times, in seconds. */
export const SECONDS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200,
  10800, 21600, 43200, 86400, 172800, 432000, 864000, 2592000, 8640000, 25920000,
];
export const DECIMAL = [...Array(16).keys()].flatMap((power) => [1, 2, 5].map((n) => n * 10 ** power));
export const INCREMENTS = { duration: SECONDS, time: SECONDS, bytes: DECIMAL };
/** The lines from 0 to a greatest number, about four of them. */
export function nice(most, steps) {
  const step = steps.find((size) => most / size <= 5) || most / 4;
  return [...Array(Math.floor(most / step)).keys()].map((n) => (n + 1) * step);
}
export function tick(seconds, all) {
  const text = new Date(seconds * 1000).toISOString();
  const step = all.length > 1 ? Math.abs(all[1] - all[0]) : 0;
  return step >= 86400
    ? text.slice(5, 10)
    : step >= 60
      ? `${text.slice(5, 10)} ${text.slice(11, 16)}`
      : text.slice(11, 19);
}

/** A card with a heading, a note and a control beside them, over what is drawn; null is left out. */
export function figure(title, note, control, ...children) {
  const words = typeof note === "string" ? el("p", { class: "note" }, note) : note;
  return el(
    "figure",
    { class: "card" },
    el("figcaption", {}, el("div", {}, el("h2", {}, title), words), control),
    ...children,
  );
}

/**
 * A chart over time: series are {name, color, dash, kind}; `kind` says how values are written.
 * Returns {root, set(over, ...columns)}; `over` has `time` in microseconds, and `breaks`, the places of times before
 * which lines break.
 */
export function lineChart(title, note, series, kind, options = {}) {
  const plotted = el("div", { class: "plot" });
  const columns = [
    { name: "time", title: "time", kind: "time" },
    ...series.map((line, at) => ({ name: at, title: line.name, kind: kind === "time" ? "time" : kind })),
  ];
  const table = twinTable(title, columns);
  const root = figure(title, note, null, plotted, table.root);
  let plot = null;
  let data = [[], ...series.map(() => [])];
  let breaks = [];
  const gaps = (u) => breaks.map((at) => [at - 1, at].map((index) => u.valToPos(data[0][index], "x", true)));
  /** The places of times that no line reaches; null if there are none. */
  const alone = () => {
    const found = breaks.filter((at) => at === data[0].length - 1 || breaks.includes(at + 1));
    if (breaks.includes(1)) found.unshift(0);
    return found.length ? found : null;
  };
  const write = (value) =>
    value === null || value === undefined ? none : kind === "time" ? time(value * 1e6) : WRITERS[kind](value);
  function make() {
    if (!data[0].length) return;
    const soft = css("--soft"),
      grid = css("--grid");
    if (plot) plot.destroy();
    const axis = {
      stroke: soft,
      grid: { stroke: grid, width: 1 },
      ticks: { stroke: grid, width: 1 },
      font: "12px system-ui, sans-serif",
    };
    plot = new uPlot(
      {
        width: Math.max(200, plotted.clientWidth),
        height: options.height || 200,
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
        cursor: { points: { size: 7 }, drag: { x: true, y: false } },
        scales: {
          x: {
            time: true,
            // about a single time uPlot takes years
            range: (u, low, high) => (u.data[0].length < 2 ? [u.data[0][0] - 30, u.data[0][0] + 30] : [low, high]),
          },
          y: options.zero === false ? {} : { range: (u, low, high) => [Math.min(0, low || 0), (high || 1) * 1.08] },
        },
        axes: [
          { ...axis, size: 32, space: 90, values: (u, values) => values.map((value) => tick(value, values)) },
          {
            ...axis,
            size: kind === "time" ? 92 : 62,
            values: AXES[kind] || AXES.short,
            ...(INCREMENTS[kind] ? { incrs: INCREMENTS[kind] } : {}),
          },
        ],
        padding: [10, 14, 0, 0],
        series: [
          { label: "time", value: (u, value) => (value === null ? none : time(value * 1e6)) },
          ...series.map((line) => ({
            label: line.name,
            stroke: css(line.color),
            width: line.width || 1.8,
            dash: line.dash || [],
            gaps, // in place of those where a value is unknown
            fill: line.fill ? `${css(line.color)}22` : undefined,
            points: { show: data[0].length < 3, size: 6, filter: (u, at, isShown) => (isShown ? null : alone()) },
            value: (u, value) => write(value),
          })),
        ],
      },
      data,
      plotted,
    );
  }
  const chart = {
    plotted,
    remake: make,
    size() {
      if (plot) plot.setSize({ width: Math.max(200, plotted.clientWidth), height: options.height || 200 });
    },
  };
  return {
    root,
    set(over, ...ys) {
      const few = data[0].length < 3,
        times = over.time;
      breaks = over.breaks;
      data = [
        times.map((micros) => micros / 1e6),
        ...ys.map((column) => (kind === "time" ? column.map((at) => (at === null ? null : at / 1e6)) : column)),
      ];
      const isKnown = ys.some((column) => column.some((number) => number !== null && number !== undefined));
      table.root.hidden = !isKnown;
      if (!isKnown) {
        if (plot) {
          plot.destroy();
          plot = null;
        }
        plotted.replaceChildren(el("p", { class: "empty" }, "Not known of this run"));
        return;
      }
      if (!plot) plotted.replaceChildren();
      if (!charts.includes(chart)) {
        charts.push(chart);
        observer.observe(plotted);
      }
      if (plot && few === data[0].length < 3) plot.setData(data);
      else make();
      table.set(() =>
        data[0]
          .map((_, at) => ({ time: times[at], ...Object.fromEntries(ys.map((column, n) => [n, column[at]])) }))
          .reverse()
          .slice(0, 300),
      );
    },
  };
}
export const SHAPES = {
  on_time: ["on time", "--on-time"],
  late: ["late", "--late"],
  expired: ["expired", "--expired"],
  unknown: ["without a verdict", "--soft"],
};
/** Draw a record: a dot if it was on time, a triangle if it was late, a cross if it had expired. */
export function shape(context, verdict, x, y, size) {
  context.beginPath();
  if (verdict === "expired") {
    context.moveTo(x - size, y - size);
    context.lineTo(x + size, y + size);
    context.moveTo(x + size, y - size);
    context.lineTo(x - size, y + size);
    context.lineWidth = size * 0.7;
    context.stroke();
  } else if (verdict === "late") {
    context.moveTo(x, y - size * 1.2);
    context.lineTo(x + size * 1.1, y + size);
    context.lineTo(x - size * 1.1, y + size);
    context.closePath();
    context.fill();
  } else {
    context.arc(x, y, size * 0.62, 0, 7);
    context.fill();
  }
}
/** Records by arrival and event time, with the low watermark as a line. Returns {root, set(samples)}. */
export function scatter() {
  const plotted = el("div", { class: "plot" }),
    note = el("p", { class: "note" }),
    key = el("div");
  const table = twinTable("Records", [
    { name: "arrival", title: "arrival", kind: "time" },
    { name: "event_time", title: "event time", kind: "time" },
    { name: "ahead_seconds", title: "ahead of the low watermark", kind: "duration" },
    { name: "verdict", title: "verdict" },
    { name: "partition", title: "partition" },
    { name: "offset", title: "offset", kind: "number" },
  ]);
  const pick = el(
    "select",
    {
      onchange: () => {
        state.put("axis", pick.value === "time" ? "" : pick.value);
        refresh();
      },
    },
    el("option", { value: "time" }, "event time"),
    el("option", { value: "ahead" }, "ahead of the low watermark"),
  );
  pick.value = state.get("axis") || "time";
  const root = figure(
    "Records: event time against processing time",
    note,
    el("label", { class: "pick" }, "Upwards", pick),
    plotted,
    key,
    table.root,
  );
  let plot = null,
    samples = null;
  function make() {
    if (!samples) return;
    if (plot) {
      plot.destroy();
      plot = null;
    }
    plotted.replaceChildren();
    const isTime = pick.value === "time",
      points = samples.points.filter((point) => isTime || point.ahead_seconds !== null),
      line = samples.line;
    if (!points.length) {
      plotted.append(el("p", { class: "empty" }, "This run has recorded no sample of its records"));
      return;
    }
    const value = (point) => (isTime ? point.event_time / 1e6 : point.ahead_seconds);
    const xs = line.arrival.map((at) => at / 1e6),
      ys = isTime ? line.low_watermark.map((at) => at / 1e6) : line.arrival.map(() => 0);
    const all = (own, others) => [...own, ...others].filter((number) => number !== null && Number.isFinite(number));
    const reach = (found) => {
      const low = found.reduce((a, b) => Math.min(a, b), Infinity),
        high = found.reduce((a, b) => Math.max(a, b), -Infinity),
        pad = (high - low || 1) * 0.04;
      return [low - pad, high + pad];
    };
    const soft = css("--soft"),
      grid = css("--grid");
    const axis = {
      stroke: soft,
      grid: { stroke: grid, width: 1 },
      ticks: { stroke: grid, width: 1 },
      font: "12px system-ui, sans-serif",
    };
    const drawPoints = (u) => {
      const context = u.ctx;
      context.save();
      context.beginPath();
      context.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
      context.clip();
      for (const verdict of ["unknown", "on_time", "late", "expired"]) {
        context.fillStyle = context.strokeStyle = css(SHAPES[verdict][1]);
        context.globalAlpha = verdict === "on_time" ? 0.55 : 1;
        for (const point of points)
          if ((point.verdict || "unknown") === verdict)
            shape(
              context,
              verdict,
              u.valToPos(point.arrival / 1e6, "x", true),
              u.valToPos(value(point), "y", true),
              (verdict === "on_time" ? 3.4 : 5.5) * devicePixelRatio,
            );
      }
      context.restore();
    };
    plot = new uPlot(
      {
        width: Math.max(200, plotted.clientWidth),
        height: 380,
        padding: [10, 14, 0, 0],
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
        cursor: { drag: { x: true, y: true } },
        scales: {
          x: {
            time: true,
            range: (u, low, high) =>
              u.zoomed
                ? [low, high]
                : reach(
                    all(
                      xs,
                      points.map((point) => point.arrival / 1e6),
                    ),
                  ),
          },
          y: { range: (u, low, high) => (u.zoomed ? [low, high] : reach(all(ys, points.map(value)))) },
        },
        axes: [
          { ...axis, size: 32, space: 90, values: (u, values) => values.map((number) => tick(number, values)) },
          { ...axis, size: 92, incrs: SECONDS, values: isTime ? AXES.time : AXES.duration },
        ],
        series: [
          {
            label: samples.arrival_is === "log" ? "arrival in the log" : "commit",
            value: (u, x) => (x === null ? none : time(x * 1e6)),
          },
          {
            label: "low watermark",
            stroke: css("--low"),
            width: 2.5,
            points: { show: false },
            value: (u, y) => (y === null || y === undefined ? none : isTime ? time(y * 1e6) : duration(y)),
          },
        ],
        hooks: {
          draw: [drawPoints],
          setSelect: [
            (u) => {
              u.zoomed = u.select.width > 0;
            },
          ],
          ready: [
            (u) =>
              u.over.addEventListener("dblclick", () => {
                u.zoomed = false;
                u.redraw(false, true);
              }),
          ],
        },
      },
      [xs, ys],
      plotted,
    );
  }
  const chart = {
    plotted,
    remake: make,
    size() {
      if (plot) plot.setSize({ width: Math.max(200, plotted.clientWidth), height: 380 });
    },
  };
  return {
    root,
    set(found) {
      samples = found;
      if (!charts.includes(chart)) {
        charts.push(chart);
        observer.observe(plotted);
      }
      note.textContent = `a uniform sample of ${count(found.points.length)} records by ${found.arrival_is === "log" ? "their arrival in the log" : "the commit of their step"}; ${pick.value === "time" ? "the line is the low watermark" : "below 0 they were behind the low watermark before their step"}. Drag to zoom, double-click for all.`;
      const counts = {};
      for (const { verdict } of found.points) counts[verdict || "unknown"] = (counts[verdict || "unknown"] || 0) + 1;
      key.replaceChildren(
        el(
          "ul",
          { class: "legend" },
          Object.entries(SHAPES)
            .filter(([verdict]) => counts[verdict])
            .map(([verdict, [name, color]]) =>
              el("li", {}, mark(verdict, color), `${name} (${count(counts[verdict])})`),
            ),
        ),
      );
      make();
      table.set(() => [...found.points].reverse().slice(0, 500));
    },
  };
}
export function mark(verdict, color) {
  const style = { fill: `var(${color})` };
  const shapes = {
    expired: svg("path", { d: "M2 2L12 12M12 2L2 12", stroke: `var(${color})`, "stroke-width": 3 }),
    late: svg("path", { d: "M7 1L13 13H1Z", ...style }),
  };
  return svg(
    "svg",
    { width: 14, height: 14, "aria-hidden": "true" },
    shapes[verdict] || svg("circle", { cx: 7, cy: 7, r: 4, ...style }),
  );
}
export const observer = new ResizeObserver((entries) => {
  for (const { target } of entries) charts.filter((chart) => chart.plotted === target).forEach((chart) => chart.size());
});
export function forget() {
  charts.forEach((chart) => observer.unobserve(chart.plotted));
  charts = [];
}

/** Hatches by which bars differ also without colours. */
export function hatches() {
  const pattern = (id, color, ...lines) =>
    svg(
      "pattern",
      { id, width: 7, height: 7, patternUnits: "userSpaceOnUse" },
      svg("rect", { width: 7, height: 7, fill: css(color), opacity: 0.35 }),
      ...lines.map((d) => svg("path", { d, stroke: css(color), "stroke-width": 2 })),
    );
  return svg(
    "defs",
    {},
    pattern("hatch-late", "--late", "M0 7L7 0"),
    pattern("hatch-expired", "--expired", "M0 7L7 0", "M0 0L7 7"),
  );
}
export function legend(items) {
  return el(
    "ul",
    { class: "legend" },
    items.map(([fill, text]) =>
      el(
        "li",
        {},
        svg(
          "svg",
          { width: 14, height: 14, "aria-hidden": "true" },
          svg("rect", { width: 14, height: 14, rx: 3, fill }),
        ),
        text,
      ),
    ),
  );
}

/** Draw all charts again, in the colours of now. */
export function repaint() {
  charts.forEach((chart) => chart.remake());
}
