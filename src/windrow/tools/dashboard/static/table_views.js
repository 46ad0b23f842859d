// Views of the tables that a run writes.

import { ask, count, el, refresh, rights, state } from "./elements.js";
import { matches, search, sortable, text } from "./tables.js";
import { card } from "./history_views.js";

/** What becomes of dead letters, as `windrow redrive` says it. */
const OUTCOMES = {
  redriven: "redriven",
  already: "redriven before",
  dead: "still dead",
  expired: "not redriven, as they would be expired",
  counted: "not redriven, as the run decodes them as they are",
  attempts: "not redriven, as they have been too often",
  gone: "not in the log any more",
};

export const TABLE_VIEWS = {
  revisions: {
    title: "Revisions",
    intro: "Rows that late records have replaced, the newest first: what was there, and what is there now.",
    build(root) {
      const holder = el("div"),
        filter = search("revisions");
      root.append(el("section", { class: "card" }, el("div", { class: "controls" }, filter.root, sinkPick()), holder));
      return (data) => {
        sinkPick.set(data);
        const columns = [
          { name: "epoch", title: "Epoch", kind: "number" },
          { name: "pane", title: "Pane" },
          { name: "revision", title: "Revision", kind: "number" },
          ...data.key.map((name) => ({
            name: `key.${name}`,
            title: name,
            nowrap: true,
            cell: (row) => text(row.key[name]),
          })),
          ...data.values.map((name) => ({ name: `value.${name}`, title: name, cell: (row) => change(row, name) })),
        ];
        const table = sortable("Revisions", columns, "sort", {
          tall: true,
          empty: filter.value() ? "No such revision" : "No row has been revised yet",
        });
        holder.replaceChildren(
          el("p", { class: "note" }, `The ${data.revisions.length} newest of ${data.table}.`),
          table.root,
        );
        filter.use((words) =>
          table.set(
            data.revisions
              .filter((row) => matches(row, words))
              .map((row) => ({
                ...row,
                ...Object.fromEntries(data.key.map((name) => [`key.${name}`, row.key[name]])),
                ...Object.fromEntries(data.values.map((name) => [`value.${name}`, (row.after || row.before)[name]])),
              })),
          ),
        );
      };
      function change(row, name) {
        if (row.after === null) return el("del", {}, text(row.before[name]));
        if (row.before === null || !row.changed.includes(name)) return text(row.after[name]);
        return [el("del", {}, text(row.before[name])), " → ", el("ins", {}, text(row.after[name]))];
      }
    },
  },

  dead: {
    title: "Dead letters",
    intro:
      "Records that could not be read. Mend the pipeline, resume from a savepoint, and redrive them: each then counts once.",
    build(root) {
      const reasons = el("div", { class: "chips" }),
        command = el("code"),
        why = el("p", { class: "note" }),
        found = el("p", { class: "note" });
      const filter = search("dead letters");
      const table = sortable(
        "Dead letters",
        [
          { name: "partition", title: "Partition", kind: "number" },
          { name: "offset", title: "Offset", kind: "number" },
          { name: "log_time", title: "Log time" },
          { name: "reason", title: "Reason" },
          { name: "raw", title: "Record", raw: true },
        ],
        "sort",
        { tall: true, empty: "No such dead letter" },
      );
      const copy = el(
        "button",
        {
          type: "button",
          onclick: async () => {
            await navigator.clipboard.writeText(command.textContent);
            copy.textContent = "Copied";
          },
        },
        "Copy",
      );
      const line = el("div", { class: "command" }, command, copy);
      const outcome = el("p", { role: "status", "aria-live": "polite" });
      const dry = el("button", { type: "button", onclick: () => redrive(true) }, "Dry run"),
        real = el(
          "button",
          { type: "button", class: "main", disabled: true, onclick: () => redrive(false) },
          "Redrive",
        );
      const writes = el("div", {}, el("div", { class: "controls" }, dry, real), outcome);
      root.append(
        el(
          "section",
          { class: "card" },
          el("h2", {}, "Reasons"),
          el("p", { class: "note" }, "Choose one to see its records."),
          reasons,
        ),
        card("Redrive", null, why, line, writes),
        el("section", { class: "card" }, el("div", { class: "controls" }, filter.root, sinkPick()), found, table.root),
      );
      async function redrive(isDry) {
        const reason = state.get("reason");
        outcome.textContent = isDry ? "Trying ..." : "Redriving ...";
        real.disabled = true;
        const asked = { dry_run: isDry, ...(reason ? { reason } : { all: true }) };
        const answer = await fetch(`/api/redrive?run=${encodeURIComponent(state.get("run"))}`, {
          method: "POST",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify(asked),
        });
        const made = await answer.json();
        if (!answer.ok) {
          outcome.textContent = made.error.message;
          return;
        }
        const words = { ...OUTCOMES, ...(isDry ? { redriven: "would be redriven" } : {}) };
        const said = Object.entries(made.outcomes)
          .map(([name, n]) => `${count(n)} ${words[name]}`)
          .join(", ");
        outcome.textContent = `${isDry ? "Dry run" : "Done"}: ${said || "no such dead letters"}.`;
        real.disabled = !isDry || !made.outcomes.redriven;
      }
      return (data) => {
        sinkPick.set(data);
        const chosen = state.get("reason") || "";
        reasons.replaceChildren(
          ...[["", data.total], ...data.reasons.map((letters) => [letters.reason, letters.letters])].map(([reason, n]) =>
            el(
              "button",
              {
                type: "button",
                "aria-pressed": String(reason === chosen),
                "data-key": reason,
                onclick: () => {
                  state.put("reason", reason);
                  real.disabled = true;
                  outcome.textContent = "";
                  refresh();
                },
              },
              `${reason || "all"} (${count(n)})`,
            ),
          ),
        );
        why.textContent =
          data.redrive.why_not ||
          (rights.canWrite
            ? "The dry run says what would become of each; nothing is written."
            : "Run this line; add --dry-run to see first what would become of each. With --token the page can do it.");
        line.hidden = data.redrive.command === null;
        writes.hidden = data.redrive.command === null || !rights.canWrite;
        command.textContent = data.redrive.command || "";
        found.textContent = `The ${data.rows.length} newest of ${count(data.total)} in ${data.table}.`;
        filter.use((words) => table.set(data.rows.filter((row) => matches(row, words))));
      };
    },
  },

  late: {
    title: "Late records",
    intro:
      "Records that came when their window had closed for good: they are in no result. To count such records, increase emit.lateness and replay the log; Lateness says how many that would be.",
    build(root) {
      const found = el("p", { class: "note" }),
        filter = search("late records");
      const table = sortable(
        "Late records",
        [
          { name: "partition", title: "Partition", kind: "number" },
          { name: "offset", title: "Offset", kind: "number" },
          { name: "event_time", title: "Event time" },
          { name: "window_start", title: "Window from" },
          { name: "window_end", title: "to" },
          { name: "late", title: "Too late by", kind: "duration" },
          { name: "record", title: "Record", raw: true },
        ],
        "sort",
        { tall: true, empty: "No record has expired" },
      );
      root.append(
        el("section", { class: "card" }, el("div", { class: "controls" }, filter.root, sinkPick()), found, table.root),
      );
      return (data) => {
        sinkPick.set(data);
        found.textContent = `The ${data.rows.length} newest of ${count(data.total)} in ${data.table}. "Too late by" is how far the watermark was past the window's end.`;
        filter.use((words) =>
          table.set(
            data.rows.filter((row) => matches(row, words)).map((row) => ({ ...row, late: row.lateness_ms / 1000 })),
          ),
        );
      };
    },
  },

  key: {
    title: "One key",
    intro:
      "All that became of a key: its rows, each change of them in the order of the changelog, and its records that had expired.",
    build(root) {
      const form = el("form", {
          class: "controls",
          onsubmit: (event) => {
            event.preventDefault();
            look();
          },
        }),
        holder = el("div", { class: "cards" }),
        explained = el("div"),
        said = el("p", { id: "why", role: "status", "aria-live": "polite" });
      root.append(el("section", { class: "card" }, el("h2", {}, "Which key"), form), said, explained, holder);
      let inputs = {},
        asked = 0,
        asking = null;
      /** Have the log read for a row: only when somebody asks, as that takes as long as the log is to read. */
      async function explain(row) {
        // the replay of a row that is no longer asked for stops
        asking?.abort();
        asking = new AbortController();
        const mine = ++asked,
          params = new URLSearchParams({ run: state.get("run") || "" });
        for (const name of Object.keys(inputs)) if (state.get(name)) params.set(name, state.get(name));
        for (const name of ["window_start", "window_end", "revision"])
          if (row[name] !== undefined && row[name] !== null) params.set(name, row[name]);
        if (state.get("sink")) params.set("sink", state.get("sink"));
        said.textContent = "Reading the log for this row: that can take some time ...";
        explained.replaceChildren();
        try {
          const data = await ask(`/api/why?${params}`, asking.signal);
          if (mine !== asked) return;
          said.textContent = "";
          explained.replaceChildren(...explanation(data.explanation));
        } catch (error) {
          if (mine === asked) said.textContent = error.message;
        }
      }
      const whyButton = (row) => el("button", { type: "button", onclick: () => explain(row) }, "Why?");
      function look() {
        asked++;
        asking?.abort();
        said.textContent = "";
        explained.replaceChildren();
        for (const [name, input] of Object.entries(inputs)) state.put(name, input.value);
        refresh();
      }
      return (data) => {
        const names = [
          ...data.fields.map((name) => [`key.${name}`, name]),
          ...(data.has_window ? [["window_start", "window_start (or all)"]] : []),
        ];
        if (Object.keys(inputs).join() !== names.map(([name]) => name).join()) {
          inputs = Object.fromEntries(
            names.map(([name]) => [name, el("input", { type: "text", value: state.get(name) || "" })]),
          );
          form.replaceChildren(
            ...names.map(([name, title]) => el("label", {}, title, inputs[name])),
            el("button", { type: "submit", class: "main" }, "Show"),
            sinkPick(),
          );
        }
        sinkPick.set(data);
        if (!data.fields.length) {
          holder.replaceChildren(el("p", { class: "empty" }, "The rows of this sink have no key"));
          return;
        }
        const isAsked = data.fields.some((name) => state.get(`key.${name}`));
        const part = (title, note, rows, missing) => {
          const empty = isAsked ? missing : "Give a key above";
          const table = sortable(
            title,
            [...(rows.length && title === "Rows" ? ["why"] : []), ...Object.keys(rows[0] || {})].map((name) => ({
              name,
              title: name,
              raw: name === "record",
              kind: typeof rows[0][name] === "number" ? "number" : "text",
              cell:
                name === "why"
                  ? whyButton
                  : name === "window_start"
                    ? (row) =>
                        el(
                          "a",
                          {
                            href: `?${with_({ window_start: row[name] })}`,
                            onclick: (event) => {
                              event.preventDefault();
                              inputs[name].value = row[name];
                              look();
                            },
                          },
                          row[name],
                        )
                    : undefined,
            })),
            "",
            { empty },
          );
          table.set(rows);
          const isMissing = title === "Rows" && !rows.length && data.fields.every((field) => state.get(`key.${field}`));
          return card(title, note, table.root, isMissing ? whyButton({}) : null);
        };
        holder.replaceChildren(
          part(
            "Rows",
            `in ${data.table}, the newest first; choose a window to see how it came about`,
            data.rows,
            "No such row",
          ),
          part(
            "Changes",
            "the changelog, oldest first: the panes of each window, and what late records revised",
            data.changes,
            "No change",
          ),
          part(
            "Expired",
            "records of this key that no row counts",
            data.late,
            data.late_why_not || "None of its newest expired records",
          ),
        );
      };
    },
  },
};

/** What is behind a row, as `windrow show --why` says it. */
function explanation(made) {
  const listed = (counts) =>
      Object.entries(counts)
        .map(([name, n]) => `${count(n)} ${name.replace("_", " ")}`)
        .join(", ") || "none",
    bySource = Object.entries(made.counts_by_source),
    sources = bySource.length > 1 ? bySource.map(([name, counts]) => `Records of ${name}: ${listed(counts)}`) : [];
  const row = made.row === null ? "There is no such row." : "";
  const verdict = made.differences.length
    ? `The records of the log do not give this row: ${made.differences.join("; ")}.`
    : made.row === null
      ? "The records of the log give no such row either."
      : "The records that count give exactly this row.";
  const values = [...new Set(made.records.flatMap((one) => Object.keys(one.values)))];
  const records = sortable(
    "Records",
    [
      { name: "partition", title: "Partition" },
      { name: "offset", title: "Offset", kind: "number" },
      { name: "event_time", title: "Event time" },
      { name: "watermark", title: "Watermark" },
      ...values.map((name) => ({ name: `value.${name}`, title: name, cell: (row) => (name in row.values ? text(row.values[name]) : "") })),
      { name: "verdict", title: "Verdict", cell: (row) => row.verdict.replace("_", " ") },
    ],
    "",
    { empty: "No record" },
  );
  records.set(made.records);
  return [
    card(
      "Why",
      Object.entries(made.key)
        .map(([name, value]) => `${name}=${text(value)}`)
        .concat(made.window === null ? [] : [`window ${made.window.join(" to ")}`])
        .join(", "),
      el("p", {}, `${row} ${verdict} Records of the log: ${listed(made.counts)}.`.trim()),
      el("ul", { class: "list" }, [...sources, ...made.notes].map((note) => el("li", {}, note))),
      records.root,
    ),
  ];
}

/** The address with some parts changed. */
function with_(changes) {
  const params = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) params.set(name, value);
  return params;
}

/** The choice of a sink, where the pipeline has several. */
function sinkPick() {
  const pick = el("select", {
    onchange: () => {
      state.put("sink", pick.value);
      refresh();
    },
  });
  const label = el("label", { hidden: true }, "Sink", pick);
  sinkPick.set = (data) => {
    label.hidden = data.sinks.length < 2;
    if (pick.options.length !== data.sinks.length)
      pick.replaceChildren(...data.sinks.map((name) => el("option", {}, name)));
    pick.value = data.sink;
  };
  return label;
}
