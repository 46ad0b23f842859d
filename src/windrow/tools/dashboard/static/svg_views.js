// Views that are drawn as SVG: the histogram of lateness, the bars of steps, the graph of the pipeline.

import { bytes, count, duration, el, percent, range, refresh, short, some, state, svg, time } from "./elements.js";
import { sortable, twinTable } from "./tables.js";
import { SECONDS, figure, hatches, legend, nice } from "./charts.js";
import { card, tile } from "./history_views.js";

export const SVG_VIEWS = {
  lateness: {
    title: "Lateness",
    intro:
      "How far records were behind the clock of their partition (the greatest event time before them), and what another delay and lateness would have done to the same records. A range is given where the size of windows or of a bucket leaves it open; windrow tune --log is exact.",
    build(root) {
      const drawing = el("div", { class: "plot" }),
        tiles = el("dl", { class: "tiles" }),
        why = el("p", { class: "note" });
      const table = twinTable("Lateness", [
        { name: "bound", title: "behind by at most", kind: "duration" },
        { name: "count", title: "records", kind: "number" },
        { name: "share", title: "share", kind: "percent" },
        { name: "above", title: "share behind by more", kind: "percent" },
      ]);
      const sliders = Object.fromEntries(["delay", "lateness"].map((name) => [name, slider(name)]));
      const whatIf = el(
        "section",
        { class: "card" },
        el("h2", {}, "What if"),
        why,
        el("div", { class: "sliders" }, sliders.delay.root, sliders.lateness.root),
        el(
          "div",
          { class: "controls" },
          el(
            "button",
            {
              type: "button",
              id: "own",
              onclick: () => {
                state.put("delay", "");
                state.put("lateness", "");
                refresh();
              },
            },
            "The pipeline's own",
          ),
        ),
        tiles,
      );
      const partitions = sortable(
        "Lateness by partition",
        [
          { name: "partition", title: "Partition" },
          { name: "records", title: "Records", kind: "number" },
          ...["p50", "p90", "p99", "p99.9"].map((name) => ({ name, title: name, kind: "duration" })),
        ],
        "sort",
        { tall: true },
      );
      root.append(
        figure(
          "Records by how far they are behind",
          "the scale is logarithmic",
          null,
          drawing,
          legend([
            ["var(--on-time)", "within the delay: on time"],
            ["url(#hatch-late)", "behind the delay: late if the window has ended"],
            ["url(#hatch-expired)", "behind delay and lateness: expired if the window has ended"],
          ]),
          table.root,
        ),
        whatIf,
        card("Partitions", "How far the records of each partition are behind, at quantiles.", partitions.root),
      );
      let bounds = [];
      function slider(name) {
        const output = el("output", { id: `${name}-value` });
        const input = el("input", {
          type: "range",
          id: `${name}-slider`,
          min: 0,
          max: 1,
          step: 1,
          value: 0,
          oninput: () => {
            show();
            state.put(name, duration(bounds[+input.value]));
            refresh();
          },
        });
        function show() {
          output.textContent = duration(bounds[+input.value]);
          input.setAttribute("aria-valuetext", output.textContent);
        }
        return {
          root: el(
            "div",
            { class: "slider" },
            el("label", { for: `${name}-slider` }, name === "delay" ? "Delay" : "Lateness", output),
            input,
          ),
          input,
          show,
        };
      }
      return (data) => {
        bounds = data.bounds_seconds;
        const then = data.what_if && data.what_if.then,
          now = data.what_if && data.what_if.now;
        for (const name of ["delay", "lateness"]) {
          const { input, show } = sliders[name];
          const value = then && then[`${name}_seconds`];
          input.max = bounds.length - 1;
          input.disabled = value === null || value === undefined;
          if (!input.disabled && document.activeElement !== input) {
            input.value = bounds.reduce((best, bound, at) => (bound <= value ? at : best), 0);
          }
          show();
        }
        why.textContent =
          data.why_not ||
          `of ${count(then.pairs)} records in windows; the pipeline has a delay of ${duration(now.delay_seconds)} and a lateness of ${duration(now.lateness_seconds)}`;
        const share = (pair) =>
          range(
            pair.map((n) => (then.pairs ? n / then.pairs : 0)),
            percent,
          );
        tiles.replaceChildren(
          ...(then
            ? [
                tile(
                  "Not on time",
                  el("span", { id: "late-share" }, share(then.not_on_time)),
                  `${range(then.not_on_time, count)}; now ${range(now.not_on_time, count)}`,
                ),
                tile(
                  "Expired",
                  el("span", { id: "expired-share" }, share(then.expired)),
                  `${range(then.expired, count)}; now ${range(now.expired, count)}`,
                ),
                tile(
                  "Rows come",
                  el(
                    "span",
                    { id: "later" },
                    data.what_if.later_seconds === 0
                      ? "as now"
                      : `${duration(Math.abs(data.what_if.later_seconds))} ${data.what_if.later_seconds > 0 ? "later" : "earlier"}`,
                  ),
                  data.what_if.later_seconds === 0 ? "with the pipeline's delay" : "than with the pipeline's delay",
                ),
                tile(
                  "State",
                  el("span", { id: "state-ratio" }, `${some.format(data.what_if.state_ratio)} ×`),
                  "windows held at once, against now",
                ),
              ]
            : []),
        );
        draw(drawing, data, then);
        let above = data.records;
        const rows = data.counts.map((n, at) => {
          above -= n;
          return {
            bound: at < bounds.length ? bounds[at] : null,
            count: n,
            share: data.records ? n / data.records : 0,
            above: data.records ? above / data.records : 0,
          };
        });
        table.set(() => rows);
        partitions.set(data.partitions);
      };
      function draw(holder, data, then) {
        const width_ = Math.max(320, holder.clientWidth),
          height = 240,
          left = 48,
          bottom = 40;
        const number = data.counts.length,
          size = (width_ - left - 8) / Math.max(1, number),
          top = 10;
        const most = Math.max(10, ...data.counts);
        const y = (n) =>
          n < 1 ? height - bottom : top + (height - bottom - top) * (1 - Math.log10(n + 0.5) / Math.log10(most * 1.5));
        const bar = (n, at) => {
          const bound = bounds[at],
            low = at ? bounds[at - 1] : -1;
          const fill =
            !then || bound <= then.delay_seconds
              ? "var(--on-time)"
              : bound <= then.delay_seconds + (then.lateness_seconds || 0)
                ? "url(#hatch-late)"
                : "url(#hatch-expired)";
          return svg(
            "rect",
            {
              x: left + at * size + 1,
              width: Math.max(1, size - 2),
              y: y(n),
              height: Math.max(0, height - bottom - y(n)),
              fill,
              rx: 2,
            },
            svg(
              "title",
              {},
              `${at ? `${duration(low)} to ` : ""}${bound === undefined ? "more" : duration(bound)}: ${count(n)} records`,
            ),
          );
        };
        const lines = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8].filter((n) => n <= most * 1.5);
        const every = Math.ceil(46 / size);
        const mark = (value, text, level) => {
          const at = bounds.filter((bound) => bound <= value).length;
          if (at > number) return null;
          const x = left + at * size;
          return svg(
            "g",
            {},
            svg("line", { class: "mark", x1: x, x2: x, y1: top, y2: height - bottom }),
            svg(
              "text",
              {
                x: x + (x > width_ - 130 ? -5 : 5),
                y: top + 12 + 16 * level,
                "text-anchor": x > width_ - 130 ? "end" : "start",
              },
              text,
            ),
          );
        };
        holder.replaceChildren(
          svg(
            "svg",
            {
              width: width_,
              height,
              role: "img",
              "aria-label": `Histogram of ${count(data.records)} records by how far they are behind; the numbers are in the table below`,
              class: "bars",
            },
            hatches(),
            ...lines.map((n) =>
              svg(
                "g",
                {},
                svg("line", { class: "grid", x1: left, x2: width_, y1: y(n), y2: y(n) }),
                svg("text", { class: "soft", x: left - 6, y: y(n) + 4, "text-anchor": "end" }, short(n)),
              ),
            ),
            ...data.counts.map(bar),
            ...data.counts
              .map((_, at) =>
                at % every
                  ? null
                  : svg(
                      "text",
                      { class: "soft", x: left + (at + 0.5) * size, y: height - bottom + 16, "text-anchor": "middle" },
                      bounds[at] === undefined ? "more" : duration(bounds[at]),
                    ),
              )
              .filter(Boolean),
            svg(
              "text",
              { class: "soft", x: width_ - 8, y: height - 6, "text-anchor": "end" },
              "behind the clock by at most",
            ),
            ...(then
              ? [
                  mark(then.delay_seconds, "delay", 0),
                  then.lateness_seconds === null
                    ? null
                    : mark(then.delay_seconds + then.lateness_seconds, "delay + lateness", 1),
                ].filter(Boolean)
              : []),
          ),
        );
      }
    },
  },

  steps: {
    title: "Steps",
    intro: "The last 60 steps, each a bar of its seconds by part. What is tallest is what a step waits for.",
    build(root) {
      const drawing = el("div", { class: "plot" }),
        key = el("div");
      const table = sortable(
        "Steps",
        [
          { name: "epoch", title: "Epoch", kind: "number" },
          { name: "committed", title: "Committed", kind: "time" },
          { name: "events", title: "Events", kind: "number" },
          { name: "took", title: "Took", kind: "duration" },
          { name: "slowest", title: "Longest part" },
          { name: "late", title: "Late", kind: "number" },
          { name: "expired", title: "Expired", kind: "number" },
          { name: "dead", title: "Dead", kind: "number" },
          { name: "inserts", title: "Rows", kind: "number" },
          { name: "revisions", title: "Revisions", kind: "number" },
          { name: "low_watermark", title: "Low watermark", kind: "time" },
          { name: "behind", title: "Behind", kind: "number" },
        ],
        "sort",
        { empty: "No step yet" },
      );
      root.append(
        figure(
          "Seconds of each step by part",
          "plan: offsets and tasks; compute: the tasks; collect: their outputs; wait: for the commit of the step before; sync: the checkpoint; commit: the sink, beside the next step",
          null,
          drawing,
          key,
        ),
        card("Steps", null, table.root),
      );
      const parts = ["plan", "compute", "collect", "wait", "sync", "commit"];
      return (data) => {
        const steps = data.steps,
          width_ = Math.max(320, drawing.clientWidth),
          height = 260,
          left = 52,
          bottom = 24,
          top = 8;
        const named = [
          ...parts,
          ...new Set(steps.flatMap((step) => Object.keys(step.parts)).filter((part) => !parts.includes(part))),
        ].filter((part) => steps.some((step) => step.parts[part]));
        const color = (part) => `var(--s${[4, 0, 2, 11, 3, 1][parts.indexOf(part)] ?? 8})`;
        const total = (step) => Object.values(step.parts).reduce((sum, n) => sum + n, 0) || step.took;
        const most = Math.max(0.001, ...steps.map(total)) * 1.05,
          size = Math.min(40, (width_ - left) / Math.max(1, steps.length));
        const y = (n) => top + (height - bottom - top) * (1 - n / most);
        const bars = steps.map((step, at) => {
          let below = 0;
          const pieces = (named.length ? named : ["took"]).map((part) => {
            const n = named.length ? step.parts[part] || 0 : step.took;
            below += n;
            return svg("rect", {
              x: left + at * size + 1,
              width: Math.max(1, size - 2),
              y: y(below),
              height: Math.max(0, y(below - n) - y(below)),
              fill: color(part),
            });
          });
          const said = named
            .filter((part) => step.parts[part])
            .map((part) => `${part} ${duration(step.parts[part])}`)
            .join(", ");
          return svg(
            "g",
            {},
            ...pieces,
            svg("title", {}, `epoch ${step.epoch}: ${count(step.events)} events in ${duration(step.took)}; ${said}`),
          );
        });
        const lines = nice(most, SECONDS);
        drawing.replaceChildren(
          svg(
            "svg",
            {
              width: width_,
              height,
              role: "img",
              class: "bars",
              "aria-label": "Seconds of the last steps by part; the numbers are in the table below",
            },
            ...lines.map((n) =>
              svg(
                "g",
                {},
                svg("line", { class: "grid", x1: left, x2: width_, y1: y(n), y2: y(n) }),
                svg("text", { class: "soft", x: left - 6, y: y(n) + 4, "text-anchor": "end" }, duration(n)),
              ),
            ),
            ...bars,
            ...steps
              .map((step, at) =>
                at % Math.ceil(60 / size)
                  ? null
                  : svg(
                      "text",
                      { class: "soft", x: left + (at + 0.5) * size, y: height - 6, "text-anchor": "middle" },
                      step.epoch,
                    ),
              )
              .filter(Boolean),
          ),
        );
        key.replaceChildren(legend(named.map((part) => [color(part), part])));
        table.set(
          [...steps].reverse().map((step) => ({
            ...step,
            slowest: Object.entries(step.parts)
              .sort((a, b) => b[1] - a[1])
              .slice(0, 1)
              .map(([part, n]) => `${part} ${duration(n)}`)
              .join(),
          })),
        );
      };
    },
  },

  graph: {
    title: "Graph",
    intro:
      "The pipeline from source to sink, with what passes each node. Above it is how the time of the last minute is shared by reading and decoding, operators, and the sink; a bar is the share of a node that does one of these alone.",
    build(root) {
      const drawing = el("div", {
        class: "scroll tall",
        tabindex: "0",
        role: "region",
        "aria-label": "Graph of the pipeline",
      });
      const table = sortable(
        "Nodes",
        [
          { name: "name", title: "Node" },
          { name: "kind", title: "Kind" },
          { name: "text", title: "What it does", raw: true },
          { name: "share", title: "Share of time", kind: "percent" },
          { name: "facts", title: "Now", cell: (row) => row.facts.map(fact).join("; ") },
        ],
        "sort",
        { tall: true },
      );
      const spent = el("p", { class: "soft", id: "work" });
      root.append(
        el("section", { class: "card" }, el("h2", {}, "Pipeline"), spent, drawing),
        card("Nodes", null, table.root),
      );
      const fact = (item) =>
        `${item.name} ${item.unit === "time" ? time(item.value) : item.unit === "bytes" ? bytes(item.value) : short(item.value)}`;
      return (data) => {
        table.set(data.nodes);
        spent.textContent = (data.work || [])
          .map((work) => `${work.name}${work.nodes > 1 ? ` (${work.nodes} nodes together)` : ""} ${percent(work.share)}`)
          .join(", ");
        if (!data.nodes.length) {
          drawing.replaceChildren(el("p", { class: "empty" }, data.why_not));
          return;
        }
        const W = 248,
          H = 132,
          GX = 70,
          GY = 26;
        const layers = [];
        for (const node of data.nodes) (layers[node.layer] ||= []).push(node);
        const tallest = Math.max(...layers.map((layer) => layer.length));
        const at = {};
        layers.forEach((nodes, x) =>
          nodes.forEach((node, y) => {
            at[node.id] = { x: 16 + x * (W + GX), y: 16 + (y + (tallest - nodes.length) / 2) * (H + GY) };
          }),
        );
        const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
        const edges = data.edges.map((edge) => {
          const a = at[edge.from],
            b = at[edge.to],
            x1 = a.x + W,
            y1 = a.y + H / 2,
            x2 = b.x - 7,
            y2 = b.y + H / 2,
            bend = Math.max(30, (x2 - x1) / 2);
          return svg(
            "g",
            {},
            svg("path", { class: "edge", d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` }),
            svg("path", { class: "arrow", d: `M${x2 + 7} ${y2}l-9 -5v10z` }),
            edge.output
              ? svg(
                  "text",
                  { class: "soft", x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 6, "text-anchor": "middle" },
                  edge.output,
                )
              : null,
          );
        });
        const nodes = data.nodes.map((node) => {
          const { x, y } = at[node.id];
          return svg(
            "g",
            { class: "node" },
            svg("title", {}, `${node.name}: ${node.text}`),
            svg("rect", { x, y, width: W, height: H, rx: 12 }),
            svg("text", { class: "soft", x: x + 14, y: y + 22 }, node.kind),
            svg("text", { class: "name", x: x + 14, y: y + 41 }, cut(node.name, 28)),
            svg("text", { class: "soft", x: x + 14, y: y + 58 }, cut(node.text, 36)),
            ...node.facts.slice(0, 3).map((item, n) => svg("text", { x: x + 14, y: y + 78 + n * 16 }, fact(item))),
            ...(node.share === null || node.share === undefined
              ? []
              : [
                  svg("rect", { class: "track", x: x + W - 62, y: y + 14, width: 48, height: 7, rx: 3 }),
                  svg("rect", { class: "share", x: x + W - 62, y: y + 14, width: 48 * node.share, height: 7, rx: 3 }),
                  svg("text", { class: "soft", x: x + W - 14, y: y + 36, "text-anchor": "end" }, percent(node.share)),
                ]),
          );
        });
        const width_ = 32 + layers.length * (W + GX) - GX,
          height = 32 + tallest * (H + GY) - GY;
        drawing.replaceChildren(
          svg(
            "svg",
            {
              width: width_,
              height,
              role: "img",
              "aria-label": `Graph of ${data.nodes.length} nodes; they are in the table below`,
            },
            ...edges,
            ...nodes,
          ),
        );
      };
    },
  },
};
