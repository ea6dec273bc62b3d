// How are curves drawn? By uPlot: one line per run, or the mean and the range over seeds, with the marks that count.
"use strict";
(() => {
  const { html, useRef, useEffect } = RF;
  const GRID = 1000; // points of the common axis where runs have other bytes or seconds at each round

  RF.cumulated = (values) => { let sum = 0; return values.map((value) => (sum += value || 0)); };

  // Curves over something that differs from run to run: each point of a common axis has the last value before it.
  const resampled = (xs, ys, axis) => {
    let place = 0;
    return axis.map((x) => {
      while (place < xs.length && xs[place] <= x) place += 1;
      return place === 0 || x > xs[xs.length - 1] * 1.0000001 ? null : ys[place - 1];
    });
  };

  RF.aligned = (lines) => {
    const same = lines.every((line) => line.xs[0] === 1 && line.xs[line.xs.length - 1] === line.xs.length);
    if (same) {
      const rounds = Math.max(0, ...lines.map((line) => line.xs.length));
      return { axis: Array.from({ length: rounds }, (_, i) => i + 1), columns: lines.map((line) => line.ys.concat(Array(rounds - line.ys.length).fill(null))) };
    }
    const most = Math.max(...lines.map((line) => line.xs[line.xs.length - 1] || 0));
    const axis = Array.from({ length: GRID }, (_, i) => (most * (i + 1)) / GRID);
    return { axis, columns: lines.map((line) => resampled(line.xs, line.ys, axis)) };
  };

  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  // Seeds of one setting as one line with a band; lines of different settings by themselves.
  RF.grouped = (lines, columns) => {
    const groups = new Map();
    lines.forEach((line, i) => groups.set(line.group, [...(groups.get(line.group) || []), i]));
    return [...groups.values()].map((members) => {
      if (members.length === 1) return { label: lines[members[0]].label, mean: columns[members[0]], members: 1 };
      const at = columns[0].map((_, x) => members.map((m) => columns[m][x]).filter((v) => v !== null && v !== undefined));
      return {
        label: lines[members[0]].groupLabel || lines[members[0]].label, members: members.length,
        mean: at.map((v) => (v.length ? mean(v) : null)), low: at.map((v) => (v.length ? Math.min(...v) : null)),
        high: at.map((v) => (v.length ? Math.max(...v) : null)),
      };
    });
  };

  // Best round, last round and the mean of the second half, for few lines.
  const marks = (series) => (u) => {
    const pen = u.ctx, scale = devicePixelRatio || 1;
    pen.save();
    for (const { index, colour } of series) {
      const ys = u.data[index], known = ys.map((y, i) => [y, i]).filter(([y]) => y !== null && y !== undefined);
      if (known.length < 2) continue;
      const best = known.reduce((a, b) => (b[0] > a[0] ? b : a)), last = known[known.length - 1], half = known.slice(Math.floor(known.length / 2));
      const level = u.valToPos(mean(half.map(([y]) => y)), "y", true);
      const point = ([y, i]) => [u.valToPos(u.data[0][i], "x", true), u.valToPos(y, "y", true)];
      pen.strokeStyle = pen.fillStyle = colour;
      pen.lineWidth = 1.25 * scale;
      pen.setLineDash([5 * scale, 4 * scale]);
      pen.beginPath();
      pen.moveTo(point(half[0])[0], level);
      pen.lineTo(point(last)[0], level);
      pen.stroke();
      pen.setLineDash([]);
      const [bx, by] = point(best), [lx, ly] = point(last);
      pen.beginPath();
      pen.moveTo(bx, by - 6 * scale); pen.lineTo(bx + 4.5 * scale, by - 13 * scale); pen.lineTo(bx - 4.5 * scale, by - 13 * scale);
      pen.fill();
      pen.beginPath();
      pen.arc(lx, ly, 3.2 * scale, 0, 7);
      pen.fill();
    }
    pen.restore();
  };

  const WHOLE = [1, 2, 5].flatMap((n) => [1, 10, 100, 1e3, 1e4, 1e5].map((ten) => n * ten)).sort((a, b) => a - b); // no half rounds
  const axisStyle = (label, values) => ({
    label, labelSize: 18, labelFont: "12px system-ui, sans-serif", font: "11px system-ui, sans-serif", stroke: RF.css("--soft"),
    grid: { stroke: RF.css("--line"), width: 1 }, ticks: { stroke: RF.css("--line"), width: 1 }, labelGap: 2, ...(values ? { values } : {}),
  });

  const options = (props, width, series, bands, drawn) => ({
    width, height: props.height || 300, series, bands, legend: { show: false },
    scales: { x: { time: false }, y: { auto: true, range: props.range || ((u, low, high) => (low === high ? [low - 1, high + 1] : [low - (high - low) * 0.04, high + (high - low) * 0.08])) } },
    axes: [
      { ...axisStyle(props.xLabel, props.xWords && ((u, ticks) => ticks.map(props.xWords))), size: 34, ...(props.xLabel === "round" && { incrs: WHOLE }) },
      { ...axisStyle(props.yLabel, props.yWords && ((u, ticks) => ticks.map(props.yWords))), size: props.gutter || 52 },
    ],
    cursor: { drag: { x: true, y: false }, points: { show: series.length < 40 }, focus: { prox: 24 } },
    focus: { alpha: series.length > 20 ? 0.25 : 1 },
    hooks: { draw: [drawn], setCursor: [(u) => props.onCursor && props.onCursor(u.cursor.idx)] },
    padding: [12, 18, 0, 0],
  });

  // lines: {label, group, colour?, xs, ys}; `seeds`: put runs together that differ in their seed only.
  RF.prepared = (lines, seeds) => {
    const { axis, columns } = RF.aligned(lines);
    if (!seeds) return { axis, shown: lines.map((line, i) => ({ label: line.label, mean: columns[i], members: 1, colour: line.colour, dash: line.dash })) };
    return { axis, shown: RF.grouped(lines, columns) };
  };

  RF.Lines = (props) => {
    const holder = useRef(), plot = useRef(null), theme = RF.useTheme(), width = RF.useWidth(holder);
    const { axis, shown } = props.prepared, many = shown.length;
    const paint = shown.map((line, i) => line.colour || RF.colour(i, many));
    const shape = shown.map((line) => [line.label, line.members > 1]).join("|") + props.xLabel + props.yLabel + (props.height || "");
    const data = [axis], series = [{}], bands = [], counted = [];
    shown.forEach((line, i) => {
      counted.push({ index: data.length, colour: paint[i] });
      data.push(line.mean);
      series.push({ label: line.label, stroke: paint[i], width: many > 40 ? 1 : 1.75, points: { show: axis.length < 3 }, spanGaps: true, dash: line.dash });
      if (line.members > 1) {
        bands.push({ series: [data.length, data.length + 1], fill: paint[i] + (paint[i][0] === "#" ? "26" : "") });
        for (const edge of [line.high, line.low]) { data.push(edge); series.push({ stroke: "transparent", width: 0, points: { show: false } }); }
      }
    });
    useEffect(() => {
      if (!width || !axis.length) return undefined;
      const drawn = props.marked && many <= 12 ? marks(counted) : () => {};
      plot.current = new uPlot(options(props, width, series, bands, drawn), data, holder.current);
      plot.current.shape = shape;
      return () => { plot.current.destroy(); plot.current = null; };
    }, [shape, theme, width > 0, axis.length > 0]);
    useEffect(() => { if (plot.current && width) plot.current.setSize({ width, height: props.height || 300 }); }, [width]);
    useEffect(() => {
      if (!plot.current || plot.current.shape !== shape) return;
      plot.current.setData(data);
      queueMicrotask(() => { RF.lastAppend = performance.now() - RF.newsAt; }); // behind the one in which uPlot draws
    }, [props.prepared]);
    useEffect(() => {
      if (!props.sync) return undefined;
      const heard = () => {
        const u = plot.current, { cursor } = props.sync;
        if (!u || props.onCursor.busy) return;
        u.setCursor(cursor === null ? { left: -10, top: -10 } : { left: u.valToPos(cursor + 1, "x"), top: u.over.clientHeight / 2 }, false);
      };
      props.sync.heard.add(heard);
      return () => props.sync.heard.delete(heard);
    }, [props.sync]);
    const canvas = () => holder.current.querySelector("canvas");
    const svg = () => {
      const u = plot.current, w = u.width, h = u.height, box = { x: u.over.offsetLeft, y: u.over.offsetTop, w: u.over.clientWidth, h: u.over.clientHeight };
      const to = (x, y) => `${(box.x + u.valToPos(x, "x")).toFixed(1)},${(box.y + u.valToPos(y, "y") + 26).toFixed(1)}`;
      const paths = shown.map((line, i) => {
        const points = axis.map((x, k) => [x, line.mean[k]]).filter(([, y]) => y !== null && y !== undefined);
        const edge = line.members > 1 ? `<polygon fill="${paint[i]}" fill-opacity="0.15" points="${axis.map((x, k) => (line.high[k] === null ? "" : to(x, line.high[k]))).join(" ")} ${axis.map((x, k) => [x, line.low[k]]).reverse().map(([x, y]) => (y === null ? "" : to(x, y))).join(" ")}"/>` : "";
        return `${edge}<polyline fill="none" stroke="${paint[i]}" stroke-width="1.6" points="${points.map(([x, y]) => to(x, y)).join(" ")}"/>`;
      });
      const ticks = (scale, side) => uPlot.rangeNum ? (u.axes[side]._splits || []).map((value, i) => [value, (u.axes[side]._values || [])[i]]) : [];
      const across = ticks("x", 0).map(([v, t]) => `<text x="${box.x + u.valToPos(v, "x")}" y="${box.y + box.h + 42}" text-anchor="middle" fill="${RF.css("--soft")}">${RF.xml(t ?? v)}</text>`);
      const up = ticks("y", 1).map(([v, t]) => `<text x="${box.x - 6}" y="${box.y + u.valToPos(v, "y") + 30}" text-anchor="end" fill="${RF.css("--soft")}">${RF.xml(t ?? v)}</text>`);
      const names = shown.slice(0, 20).map((line, i) => `<text x="${box.x + 8}" y="${h + 44 + 15 * i}" fill="${paint[i]}">${RF.xml(line.label)}</text>`);
      RF.saveSvg(props.title, w, h + 40 + 15 * names.length, `<text x="8" y="18" font-size="13" font-weight="600" fill="${RF.css("--ink")}">${RF.xml(props.title)}</text><rect x="${box.x}" y="${box.y + 26}" width="${box.w}" height="${box.h}" fill="none" stroke="${RF.css("--line")}"/>${paths.join("")}${across.join("")}${up.join("")}${names.join("")}`);
    };
    const csv = () => {
      const header = [props.xLabel], columns = [axis];
      for (const line of shown) {
        header.push(line.label);
        columns.push(line.mean);
        if (line.members > 1) { header.push(line.label + " (lowest)", line.label + " (highest)"); columns.push(line.low, line.high); }
      }
      RF.saveCsv(props.title, header, axis.map((_, i) => columns.map((column) => column[i])));
    };
    return html`<figure class="chart">
      <figcaption><h3>${props.title}</h3>${props.tools}<${RF.Saves} title=${props.title} png=${() => RF.savePng(props.title, canvas(), props.title)} svg=${svg} csv=${csv} /></figcaption>
      <div ref=${holder} role="img" aria-label=${props.label || props.title} class="plot" style=${{ minHeight: (props.height || 300) + "px" }}></div>
      ${props.legend !== false && many <= 20 && html`<ul class="legend">${shown.map((line, i) => html`<li key=${i}><span class="swatch" style=${{ background: paint[i] }}></span>${line.label}${line.members > 1 ? ` (mean and range of ${line.members} seeds)` : ""}</li>`)}</ul>`}
      ${many > 20 && html`<p class="note">${many} lines.</p>`}
      ${props.marked && many <= 12 && html`<p class="note">▼ best round (chosen on the test set, so too good) · ● last round · dashed: mean of the second half.</p>`}
    </figure>`;
  };
})();
