// Tables that sort, and the numbers of charts as tables.

import { bytes, count, duration, el, percent, short, state, time } from "./elements.js";

export const WRITERS = {
  number: count,
  short,
  bytes,
  duration,
  time,
  percent,
  text: (value) => (value === null || value === undefined ? "" : String(value)),
};

/**
 * A table that sorts: columns are {name, title, kind, cell}, `cell` returns what a row shows instead of its value.
 * The sorting is in the address as `key`; without one it does not sort. Returns {root, set(rows)}.
 */
export function sortable(label, columns, key, options = {}) {
  const body = el("tbody");
  const heads = columns.map((column) =>
    el(
      "th",
      { scope: "col", class: isNumber(column) ? "number" : "", "aria-sort": key ? "none" : null },
      key ? el("button", { type: "button", onclick: () => sort(column) }, column.title) : column.title,
    ),
  );
  const root = el(
    "div",
    { class: `scroll ${options.tall ? "tall" : ""}`, tabindex: "0", role: "region", "aria-label": label },
    el("table", {}, el("thead", {}, el("tr", {}, heads)), body),
  );
  let rows = [];
  function sort(column) {
    const [name, way] = (state.get(key) || "").split(":");
    state.put(key, name === column.name && way !== "desc" ? `${name}:desc` : column.name);
    draw();
  }
  function draw() {
    const [name, way] = (key ? state.get(key) || "" : "").split(":");
    if (key)
      columns.forEach((column, at) =>
        heads[at].setAttribute(
          "aria-sort",
          column.name !== name ? "none" : way === "desc" ? "descending" : "ascending",
        ),
      );
    const sorted = name
      ? [...rows].sort((left, right) => compare(left[name], right[name]) * (way === "desc" ? -1 : 1))
      : rows;
    body.replaceChildren(
      ...sorted.map((row) =>
        el(
          "tr",
          {},
          columns.map((column) => cellOf(column, row)),
        ),
      ),
    );
    if (!rows.length)
      body.append(el("tr", {}, el("td", { colspan: columns.length, class: "empty" }, options.empty || "Nothing yet")));
  }
  return {
    root,
    set(found) {
      rows = found;
      draw();
    },
  };
}
export const isNumber = (column) => ["number", "short", "bytes", "duration", "percent"].includes(column.kind);
export function cellOf(column, row) {
  const shown = column.cell ? column.cell(row) : WRITERS[column.kind || "text"](row[column.name]);
  return el(
    "td",
    { class: isNumber(column) ? "number" : column.kind === "time" || column.nowrap ? "time" : column.raw ? "raw" : "" },
    shown,
  );
}
export function compare(left, right) {
  if (left === right) return 0;
  if (left === null || left === undefined) return 1;
  if (right === null || right === undefined) return -1;
  const numbers = [String(left), String(right)].map((text) => text.split("/").pop());
  if (
    typeof left !== "number" &&
    numbers.every((text) => /^\d+$/.test(text)) &&
    String(left).split("/")[0] === String(right).split("/")[0]
  )
    [left, right] = numbers.map(Number);
  return left < right ? -1 : left > right ? 1 : 0;
}

/**
 * A table with a row a measure, {name, title, color}, and a column a part, shaded by its share of the row's greatest
 * number. Returns {root, set(parts)}: a part has the number of each measure, and its own as `key`.
 */
export function heat(label, corner, key, measures) {
  const head = el("tr"),
    body = el("tbody");
  const root = el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    el("table", { class: "heat" }, el("thead", {}, head), body),
  );
  return {
    root,
    set(parts) {
      head.replaceChildren(
        el("th", { scope: "col" }, corner),
        ...parts.map((part) => el("th", { scope: "col", class: "number" }, String(part[key]))),
      );
      body.replaceChildren(
        ...measures.map((measure) => {
          const most = Math.max(1, ...parts.map((part) => part[measure.name]));
          const row = el("tr", {}, el("th", { scope: "row" }, measure.title));
          for (const part of parts) {
            const cell = el("td", { class: "number" }, short(part[measure.name]));
            cell.style.setProperty("--share", part[measure.name] / most);
            row.append(cell);
          }
          row.style.setProperty("--heat", `var(${measure.color})`);
          return row;
        }),
      );
    },
  };
}

/** The numbers of a chart as a table, which is filled when it is opened. */
export function twinTable(label, columns) {
  const holder = el("div");
  let rows = () => [];
  const root = el("details", { ontoggle: draw }, el("summary", {}, "The numbers as a table"), holder);
  function draw() {
    if (!root.open) return;
    const shown = rows();
    holder.replaceChildren(
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": `${label}, as a table` },
        el(
          "table",
          {},
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              columns.map((column) =>
                el("th", { scope: "col", class: isNumber(column) ? "number" : "" }, column.title),
              ),
            ),
          ),
          el(
            "tbody",
            {},
            shown.map((row) =>
              el(
                "tr",
                {},
                columns.map((column) => cellOf(column, row)),
              ),
            ),
          ),
        ),
      ),
    );
  }
  return {
    root,
    set(make) {
      rows = make;
      draw();
    },
  };
}

export const text = (value) => (value === null || value === undefined ? "null" : String(value));
export const matches = (row, words) => !words || JSON.stringify(row).toLowerCase().includes(words.toLowerCase());

/** A text that rows have to hold, in the address as `q`. */
export function search(what) {
  let use = () => {};
  const input = el("input", {
    type: "search",
    id: "filter",
    value: state.get("q") || "",
    oninput: () => {
      state.put("q", input.value);
      use(input.value);
    },
  });
  return {
    root: el("label", {}, `Only ${what} with this text`, input),
    value: () => input.value,
    use(then) {
      use = then;
      use(input.value);
    },
  };
}
