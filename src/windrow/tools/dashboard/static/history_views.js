// Views of the history. Each has a title, an introduction, and `build`, which returns what draws a twin.

import { bytes, count, duration, el, none, percent, short, time } from "./elements.js";
import { heat, sortable } from "./tables.js";
import { DASHES, lineChart, scatter } from "./charts.js";

export const card = (title, note, ...children) =>
  el("section", { class: "card" }, el("h2", {}, title), note ? el("p", { class: "note" }, note) : null, ...children);
export const chip = (level, text) => el("span", { class: `chip ${level}` }, text);
export const tile = (name, value, note) =>
  el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, value, note ? el("small", {}, note) : null));

export const HISTORY_VIEWS = {
  overview: {
    title: "Overview",
    intro: "Does it run, is it up to date, and are the numbers right?",
    build(root) {
      const answers = el("div", { class: "cards three" }),
        tiles = el("dl", { class: "tiles six" }),
        alerts = el("div", { class: "cards" });
      const rate = lineChart(
        "Events a second",
        "records and dead letters that steps have read",
        [{ name: "events/s", color: "--s0", fill: true }],
        "short",
      );
      const lag = lineChart(
        "Lag",
        "records of the log that are not read yet",
        [{ name: "records", color: "--s1", fill: true }],
        "short",
      );
      const fresh = lineChart(
        "How far the results are behind",
        "from the low watermark to the clock when a step was committed",
        [{ name: "watermark lag", color: "--s2" }],
        "duration",
      );
      const outcome = lineChart(
        "Records out of order",
        "per point of the chart",
        [
          { name: "late", color: "--late" },
          { name: "expired", color: "--expired", dash: DASHES[2] },
          { name: "dead letters", color: "--s3", dash: DASHES[1] },
        ],
        "short",
      );
      root.append(
        answers,
        tiles,
        alerts,
        el("div", { class: "cards two" }, rate.root, lag.root, fresh.root, outcome.root),
      );
      return (data) => {
        answers.replaceChildren(
          ...data.answers.map((answer) =>
            el(
              "section",
              { class: `card answer ${answer.level}` },
              el("h2", {}, answer.question),
              el("strong", {}, answer.headline),
              el(
                "ul",
                {},
                answer.reasons.map((text) => el("li", {}, text)),
              ),
            ),
          ),
        );
        const totals = data.totals || {};
        const unknown = data.only_offsets ? "not counted in real time" : null;
        const share = (n) => unknown || (totals.events ? percent(n / totals.events) : null);
        const trend = data.lag_trend;
        const ended = ["ended", "failed", "killed", "lost"].includes(data.state);
        tiles.replaceChildren(
          tile("Events", count(totals.events), data.since ? `since ${time(data.since)}` : null),
          tile("Events a second", short(data.events_per_second), ended ? "in its last minute" : "in the last minute"),
          tile(
            "Lag",
            data.behind === null ? none : `${short(data.behind)} records`,
            [
              data.behind && data.lag_seconds !== null ? `oldest waits ${duration(data.lag_seconds)}` : null,
              !ended && trend && Math.abs(trend) >= 1
                ? `${trend > 0 ? "grows" : "shrinks"} by ${short(Math.abs(trend))}/s`
                : null,
            ]
              .filter(Boolean)
              .join(", ") || null,
          ),
          tile(
            "Time to clear",
            ended ? none : data.behind ? duration(data.seconds_until_clear) : "0s",
            !ended && data.behind && data.seconds_until_clear === null ? "the lag does not shrink" : null,
          ),
          tile(
            "Low watermark",
            time(data.low_watermark).slice(-8),
            data.low_watermark === null
              ? null
              : `${time(data.low_watermark).slice(0, -9)}, ${duration(data.watermark_lag)} behind the clock${ended ? " then" : ""}`,
          ),
          tile(
            "Held by",
            data.held.length
              ? `${data.held.length > 1 ? "partitions" : "partition"} ${data.held
                  .slice(0, 3)
                  .map((row) => row.partition)
                  .join(", ")}`
              : none,
            data.held.length
              ? el("a", { href: "?view=watermark", "data-view": "watermark" }, "Why?")
              : null,
          ),
          tile(
            "From log to commit",
            data.latency_seconds.p50 === undefined ? none : duration(data.latency_seconds.p50),
            data.latency_seconds.p99 === undefined
              ? unknown || "known of Kafka's log timestamps alone"
              : `p50; p99 ${duration(data.latency_seconds.p99)}`,
          ),
          tile("Late", count(totals.late), share(totals.late)),
          tile("Expired", count(totals.expired), share(totals.expired)),
          tile(
            "Dead letters",
            unknown ? none : count((totals.dead || 0) + (totals.rejected || 0)),
            share(totals.dead + totals.rejected),
          ),
          tile("Rows and revisions", count(totals.inserts), unknown || `${count(totals.revisions)} revised`),
          tile(
            "State",
            bytes(data.state_bytes),
            data.open_windows === null ? null : `${count(data.open_windows)} open windows`,
          ),
        );
        const hot = Object.entries(data.hot_keys).flatMap(([node, keys]) =>
          Object.entries(keys)
            .filter(([, part]) => part >= 0.01)
            .map(([key, part]) => [node, key, part]),
        );
        alerts.replaceChildren(
          ...(data.alerts.length
            ? [
                card(
                  "Alerts",
                  null,
                  el(
                    "ul",
                    { class: "list" },
                    data.alerts.map((alert) =>
                      el(
                        "li",
                        {},
                        chip(alert.resolved === null ? "bad" : "", alert.name),
                        ` ${alert.message} `,
                        el(
                          "span",
                          { class: "soft" },
                          alert.resolved === null
                            ? `since ${time(alert.since)}`
                            : `${time(alert.since)} to ${time(alert.resolved)}`,
                          `; ${alert.runbook}`,
                        ),
                      ),
                    ),
                  ),
                ),
              ]
            : []),
          ...(hot.length
            ? [
                card(
                  "Hot keys",
                  "keys with far more records than others: their share of all that their node had in the last minute",
                  el(
                    "p",
                    {},
                    hot.map(([node, key, part]) => `${node ? `${node}: ` : ""}${key || "''"} ${percent(part)}`).join(", "),
                  ),
                ),
              ]
            : []),
        );
        alerts.hidden = !alerts.children.length;
        const s = data.series;
        rate.set(s, s.events_per_second);
        lag.set(s, s.behind);
        fresh.set(s, s.watermark_lag);
        outcome.set(s, s.late, s.expired, s.dead);
      };
    },
  },

  watermark: {
    title: "Watermark",
    intro:
      "The low watermark is the least of the partitions' watermarks, but for those that are idle. A window is written when it has passed the window's end, so results are as late as the partition that holds it.",
    build(root) {
      const tiles = el("dl", { class: "tiles" }),
        why = el("div");
      let widest = 1;
      const table = sortable(
        "Partitions",
        [
          { name: "partition", title: "Partition" },
          {
            name: "state",
            title: "State",
            cell: (row) => (row.holds ? chip("warn", "holds it") : row.idle ? chip("", "idle") : chip("good", "ahead")),
          },
          { name: "watermark", title: "Watermark", kind: "time" },
          {
            name: "ahead_seconds",
            title: "Ahead by",
            kind: "duration",
            cell: (row) => [
              duration(row.ahead_seconds),
              el(
                "span",
                { class: "meter", "aria-hidden": "true" },
                width(el("i"), row.ahead_seconds === null ? 0 : row.ahead_seconds / widest),
              ),
            ],
          },
          { name: "lag", title: "Lag (records)", kind: "number" },
          { name: "lag_seconds", title: "Lag (time)", kind: "duration" },
          { name: "records_per_second", title: "Records/s", kind: "short" },
          { name: "offset", title: "Next offset", kind: "number" },
          { name: "newest_log_time", title: "Newest read, in the log", kind: "time" },
        ],
        "sort",
        { tall: true, empty: "No partition has been read yet" },
      );
      root.append(tiles, why, card("Partitions", "Sort by a column to find the one that is behind.", table.root));
      return (data) => {
        tiles.replaceChildren(
          tile(
            "Low watermark",
            time(data.low_watermark),
            data.low_watermark === null ? null : `${duration(data.watermark_lag)} behind the clock`,
          ),
          tile(
            "Last moved",
            data.standing_seconds === null ? none : `${duration(data.standing_seconds)} ago`,
            "before the last step, while records came",
          ),
          tile(
            "Held by",
            data.held.length ? count(data.held.length) : none,
            data.held.length === 1 ? `partition ${data.held[0].partition}` : "partitions",
          ),
          tile("Idle", count(data.idle.length), "partitions that do not hold it"),
        );
        why.replaceChildren(
          ...(data.held.length
            ? [
                card(
                  "Who holds it",
                  null,
                  el(
                    "ul",
                    { class: "list" },
                    data.held
                      .slice(0, 10)
                      .map((row) => el("li", {}, el("strong", {}, `Partition ${row.partition}: `), row.why)),
                  ),
                ),
              ]
            : []),
        );
        widest = Math.max(1e-9, ...data.partitions.map((row) => row.ahead_seconds || 0));
        table.set(data.partitions.map((row) => ({ ...row, state: row.holds ? 0 : row.idle ? 1 : 2 })));
      };
    },
  },

  time: {
    title: "Event time",
    intro:
      "When records were made against when they came. Windows are written up to the low watermark. A watermark that runs flat waits for records; one below the others holds them all back.",
    build(root) {
      const holder = el("div", { class: "cards" }),
        records = scatter();
      const rows = lineChart(
        "Rows written",
        "windows that fired on time, and rows that late records revised, per point of the chart",
        [
          { name: "rows", color: "--s0", fill: true },
          { name: "revisions", color: "--late", dash: DASHES[1] },
        ],
        "short",
      );
      root.append(records.root, holder, rows.root);
      let names = null,
        chart = null,
        ahead = null;
      return (data) => {
        const found = data.partitions.map((row) => String(row.partition)).join();
        if (names !== found) {
          names = found;
          chart = lineChart(
            "Watermarks",
            data.left_out
              ? `the ${data.partitions.length} partitions that are behind most; ${data.left_out} more are in the table of Watermark`
              : "event time of each partition's watermark when a step was committed",
            [
              { name: "low watermark", color: "--low", width: 3 },
              ...data.partitions.map((row, at) => ({
                name: `partition ${row.partition}`,
                color: `--s${at % 12}`,
                dash: DASHES[at % DASHES.length],
                width: 1.6,
              })),
            ],
            "time",
            { height: 380, zero: false },
          );
          ahead = lineChart(
            "Ahead of the low watermark",
            "how far each partition's watermark is ahead; the one at 0 holds the others back",
            data.partitions.map((row, at) => ({
              name: `partition ${row.partition}`,
              color: `--s${at % 12}`,
              dash: DASHES[at % DASHES.length],
            })),
            "duration",
            { height: 220 },
          );
          holder.replaceChildren(chart.root, ahead.root);
        }
        chart.set(data, data.low_watermark, ...data.partitions.map((row) => row.watermark));
        ahead.set(data, ...data.partitions.map((row) => row.ahead_seconds));
        rows.set(data, data.inserts, data.revisions);
        records.set(data.samples);
      };
    },
  },

  throughput: {
    title: "Throughput",
    intro: "Records a second and lag of each partition, and what the state holds.",
    build(root) {
      const holder = el("div", { class: "cards" });
      const latency = lineChart(
        "Latency",
        "p99 from a record's log timestamp to the commit of its step",
        [{ name: "p99", color: "--s3" }],
        "duration",
      );
      const held = lineChart(
        "State",
        "bytes in the state store",
        [{ name: "bytes", color: "--s4", fill: true }],
        "bytes",
      );
      const windows = lineChart(
        "Open windows",
        "windows that are not written yet",
        [{ name: "windows", color: "--s2" }],
        "short",
      );
      const skew = lineChart(
        "Skew",
        "records of the key group that has most, as a multiple of the mean",
        [{ name: "load", color: "--s5" }],
        "short",
      );
      root.append(holder, el("div", { class: "cards two" }, latency.root, held.root, windows.root, skew.root));
      let names = null,
        rates = null,
        lags = null;
      return (data) => {
        const found = data.partitions.map((row) => String(row.partition)).join();
        if (names !== found) {
          names = found;
          const series = data.partitions.map((row, at) => ({
            name: `partition ${row.partition}`,
            color: `--s${at % 12}`,
            dash: DASHES[at % DASHES.length],
          }));
          rates = lineChart("Records a second by partition", null, series, "short", { height: 240 });
          lags = lineChart("Lag by partition", "records that are not read yet", series, "short", { height: 240 });
          holder.replaceChildren(rates.root, lags.root);
        }
        rates.set(data, ...data.partitions.map((row) => row.records_per_second));
        lags.set(data, ...data.partitions.map((row) => row.lag));
        latency.set(data, data.latency_p99);
        held.set(data, data.state_bytes);
        windows.set(data, data.open_windows);
        skew.set(data, data.key_group_load);
      };
    },
  },

  windows: {
    title: "Windows",
    intro:
      "Windows by key group: open ones wait for the low watermark to pass their end, then they fire; they are closed when no later record can revise them. A key group that holds far more than the others has more keys, or keys that are active at more times.",
    build(root) {
      const why = el("p", { class: "note" }),
        holder = el("div", { class: "cards" });
      root.append(why, holder);
      let names = null,
        shown = [];
      return (data) => {
        why.textContent = data.why_not ? `There are none to show: ${data.why_not}.` : "";
        why.hidden = !data.why_not;
        const found = JSON.stringify(data.nodes.map((node) => [node.node, node.kind, node.note]));
        if (names !== found) {
          names = found;
          shown = data.nodes.map((node) => {
            const tiles = el("dl", { class: "tiles" });
            const table = heat(`Windows of ${node.node} by key group`, "Key group", "key_group", [
              { name: "open", title: "open", color: "--s0" },
              { name: "fired", title: "fired", color: "--s2" },
              { name: "closed", title: "closed", color: "--s3" },
            ]);
            return { tiles, table, root: card(title(node), node.note, tiles, table.root) };
          });
          holder.replaceChildren(...shown.map((view) => view.root));
        }
        data.nodes.forEach((node, at) => {
          const most = node.key_groups.reduce((most, part) => (part.open > most.open ? part : most));
          const mean = node.open / node.key_groups.length;
          shown[at].tiles.replaceChildren(
            tile("Open", count(node.open), "in all key groups, now"),
            tile("Fired", count(node.fired), data.since ? `since ${time(data.since)}` : null),
            tile("Closed", count(node.closed), data.since ? `since ${time(data.since)}` : null),
            tile(
              "Most open",
              most.open === mean ? none : `key group ${most.key_group}`,
              most.open === mean ? "all key groups alike" : `${count(most.open)}; ${short(mean)} in the mean`,
            ),
          );
          shown[at].table.set(node.key_groups);
        });
      };
    },
  },
};

const title = (node) => (node.kind ? `${node.node}: ${node.kind} windows` : node.node);

const width = (element, share) => {
  element.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return element;
};
