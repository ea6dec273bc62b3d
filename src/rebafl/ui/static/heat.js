// How are maps drawn? On one canvas: millions of cells are binned to the pixels there are; maps share rounds and a cursor.
"use strict";
(() => {
  const { html, useRef, useEffect } = RF;
  const AXIS = 20;
  const SEVERITY = [0, 0, 0, 1, 2, 3, 0]; // late, lost, refused: the most striking of a bin is shown
  const ANSWERED = 2;

  // What several maps share: the rounds that are shown, and where the cursor is; all counted from 0.
  RF.makeSync = (rounds) => ({
    rounds, from: 0, to: rounds, cursor: null, row: null, heard: new Set(),
    set(changes) {
      Object.assign(this, changes);
      for (const listener of this.heard) listener(changes);
    },
    grow(rounds) { // a view of all rounds stays one
      const whole = this.from === 0 && this.to === this.rounds;
      this.set({ rounds, to: whole ? rounds : Math.min(this.to, rounds), from: whole ? 0 : Math.min(this.from, Math.max(0, rounds - 1)) });
    },
    zoom(factor, at) {
      const width = Math.min(this.rounds, Math.max(Math.min(4, this.rounds), (this.to - this.from) * factor));
      const centre = at ?? (this.from + this.to) / 2;
      const part = (centre - this.from) / Math.max(1e-9, this.to - this.from);
      this.show(centre - part * width, width);
    },
    pan(part) { this.show(this.from + part * (this.to - this.from), this.to - this.from); },
    show(from, width) {
      const first = Math.round(Math.max(0, Math.min(from, this.rounds - width)));
      this.set({ from: first, to: Math.min(this.rounds, Math.max(first + 1, Math.round(first + width))) });
    },
  });

  const pack = ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r;
  const mix = (a, b, t) => a.map((value, i) => Math.round(value + (b[i] - value) * t));

  RF.stateColours = () => ["--not-chosen", "--away", "--answered", "--late", "--lost", "--refused", "--spent"].map((name) => RF.rgb(RF.css(name)));

  RF.ramp = (name) => {
    const stops = [0, 1, 2, 3, 4].map((i) => RF.rgb(RF.css(`--${name}-${i}`)));
    return Uint32Array.from({ length: 256 }, (_, i) => {
      const place = (i / 255) * 4, low = Math.min(3, Math.floor(place));
      return pack(mix(stops[low], stops[low + 1], place - low));
    });
  };

  // Of many clients, as many rows as there are pixels: counted once for each round, so that moving through rounds is fast.
  const binnedRows = (model, r0, r1, bh) => {
    const { cells, rows, order, cols, cache } = model, lines = r1 - r0, key = [r0, r1, bh].join();
    let kept = cache.rows;
    if (!kept || kept.key !== key || kept.order !== order || kept.room < cols) {
      const room = Math.max(cols, Math.ceil(cols * 1.2)), sizes = new Uint32Array(bh);
      const place = Int32Array.from({ length: lines }, (_, r) => Math.floor((r * bh) / lines));
      for (const y of place) sizes[y] += 1;
      kept = cache.rows = { key, order, room, place, sizes, done: 0, there: new Uint32Array(room * bh), bad: new Uint32Array(room * bh), worst: new Uint8Array(room * bh) };
    }
    const { place, there, worst, bad } = kept;
    for (let c = kept.done; c < cols; c += 1) {
      const base = c * rows, out = c * bh;
      for (let r = 0; r < lines; r += 1) {
        const state = cells[base + order[r0 + r]];
        if (state === ANSWERED) there[out + place[r]] += 1;
        else if (SEVERITY[state]) {
          const i = out + place[r];
          bad[i] += 1;
          if (SEVERITY[state] > SEVERITY[worst[i]]) worst[i] = state;
        }
      }
    }
    kept.done = cols;
    return kept;
  };

  // Each pixel gets the colour of the columns and rows that fall on it.
  const paintBins = ({ c0, c1, r0, r1 }, width, height, colourOf) => {
    const columns = c1 - c0, lines = r1 - r0, bw = Math.min(width, columns), bh = Math.min(height, lines);
    const pixels = new Uint32Array(bw * bh);
    for (let y = 0; y < bh; y += 1) for (let x = 0; x < bw; x += 1) {
      const first = c0 + Math.floor((x * columns) / bw), last = Math.max(first + 1, c0 + Math.floor(((x + 1) * columns) / bw));
      const top = r0 + Math.floor((y * lines) / bh), bottom = Math.max(top + 1, r0 + Math.floor(((y + 1) * lines) / bh));
      pixels[y * bw + x] = colourOf(first, last, top, bottom);
    }
    return { pixels, bw, bh };
  };

  // Each painter fills at most one pixel per cell and at least one cell per pixel; the canvas enlarges what is left.
  const painters = {
    cells(model, { c0, c1, r0, r1 }, width, height) {
      const { cells, rows, order } = model, colours = RF.stateColours(), lut = Uint32Array.from(colours, pack);
      const columns = c1 - c0, lines = r1 - r0, bw = Math.min(width, columns), bh = Math.min(height, lines);
      const pixels = new Uint32Array(bw * bh);
      if (bw === columns && bh === lines) {
        for (let c = 0; c < columns; c += 1) {
          const base = (c0 + c) * rows;
          for (let r = 0; r < lines; r += 1) pixels[r * bw + c] = lut[cells[base + order[r0 + r]]];
        }
        return { pixels, bw, bh };
      }
      const { there, worst, bad, sizes } = binnedRows(model, r0, r1, bh);
      const base = colours[model.idle], shades = Array.from({ length: 101 }, (_, i) => mix(base, colours[ANSWERED], i / 100));
      const packed = Uint32Array.from(shades, pack);
      for (let x = 0; x < bw; x += 1) {
        const first = c0 + Math.floor((x * columns) / bw), last = Math.max(first + 1, c0 + Math.floor(((x + 1) * columns) / bw));
        for (let y = 0; y < bh; y += 1) {
          let came = 0, state = 0, hurt = 0;
          for (let c = first; c < last; c += 1) {
            const i = c * bh + y;
            came += there[i];
            hurt += bad[i];
            if (SEVERITY[worst[i]] > SEVERITY[state]) state = worst[i];
          }
          const all = sizes[y] * (last - first), share = Math.round((100 * came) / all);
          pixels[y * bw + x] = state ? pack(mix(shades[share], colours[state], Math.max(0.45, hurt / all))) : packed[share];
        }
      }
      return { pixels, bw, bh };
    },
    bins(model, view, width, height) {
      const colours = RF.stateColours(), base = colours[model.idle];
      return paintBins(view, width, height, (first, last, top, bottom) => {
        let sum = 0, state = 0;
        for (let c = first; c < last; c += 1) for (let r = top; r < bottom; r += 1) {
          const i = c * model.rows + r;
          sum += model.share[i];
          if (SEVERITY[model.worst[i]] > SEVERITY[state]) state = model.worst[i];
        }
        const shade = mix(base, colours[ANSWERED], sum / 255 / ((last - first) * (bottom - top)));
        return pack(state ? mix(shade, colours[state], 0.5) : shade);
      });
    },
    values(model, view, width, height) {
      const ramp = RF.ramp(model.ramp), none = pack(RF.rgb(RF.css("--none")));
      return paintBins(view, width, height, (first, last, top, bottom) => {
        let sum = 0, count = 0;
        for (let r = top; r < bottom; r += 1) for (let c = first; c < last; c += 1) {
          const value = model.value(r, c);
          if (value === value && value !== null) { sum += value; count += 1; }
        }
        return count ? ramp[Math.max(0, Math.min(255, Math.round((255 * sum) / count)))] : none;
      });
    },
  };

  class Heat {
    constructor(canvas, line, props) {
      Object.assign(this, { canvas, line, props, rowsFrom: 0, rowsTo: props.model.rows, pending: 0 });
      this.sheet = document.createElement("canvas");
    }

    get gutter() { return this.canvas.clientWidth < 520 ? 74 : 108; }

    // Which columns are shown: those of the rounds that all maps show.
    columns() {
      const { sync, model } = this.props, total = Math.max(1, sync.rounds);
      const c0 = Math.max(0, Math.min(model.cols - 1, Math.floor((sync.from / total) * model.cols)));
      return { c0, c1: Math.max(c0 + 1, Math.min(model.cols, Math.ceil((sync.to / total) * model.cols))) };
    }

    later() {
      if (!this.pending) this.pending = requestAnimationFrame(() => { this.pending = 0; this.draw(); });
    }

    draw() {
      const { canvas, props: { model, axis } } = this, scale = devicePixelRatio || 1;
      const width = canvas.clientWidth, height = canvas.clientHeight;
      if (!width || !height || !model.cols || !model.rows) return;
      this.rowsTo = Math.min(this.rowsTo, model.rows);
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      const pen = canvas.getContext("2d");
      pen.scale(scale, scale);
      const plot = this.plot = { x: this.gutter, y: 0, w: width - this.gutter, h: height - (axis ? AXIS : 0) };
      const part = { ...this.columns(), r0: this.rowsFrom, r1: this.rowsTo };
      const { pixels, bw, bh } = painters[model.kind](model, part, Math.round(plot.w * scale), Math.round(plot.h * scale));
      this.sheet.width = bw;
      this.sheet.height = bh;
      this.sheet.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), bw, bh), 0, 0);
      pen.imageSmoothingEnabled = false;
      pen.drawImage(this.sheet, plot.x, plot.y, plot.w, plot.h);
      this.gaps(pen, part);
      this.letters(pen, part);
      this.cursor();
    }

    // Large cells are set apart; the lines are as thin as can be.
    gaps(pen, { c0, c1, r0, r1 }) {
      const { plot } = this, wide = plot.w / (c1 - c0), tall = plot.h / (r1 - r0);
      pen.fillStyle = RF.css("--paper");
      if (wide >= 5) for (let c = 1; c < c1 - c0; c += 1) pen.fillRect(Math.round(plot.x + c * wide) - 0.5, plot.y, 1, plot.h);
      if (tall >= 5) for (let r = 1; r < r1 - r0; r += 1) pen.fillRect(plot.x, Math.round(plot.y + r * tall) - 0.5, plot.w, 1);
    }

    ticks() {
      const { sync } = this.props, span = sync.to - sync.from, most = Math.max(2, Math.floor(this.plot.w / 64));
      const step = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 5000].find((s) => span / s <= most) || 10000;
      const ticks = [];
      for (let round = Math.ceil((sync.from + 1) / step) * step; round <= sync.to; round += step) {
        if (round > 0) ticks.push([round, this.plot.x + ((round - 0.5 - sync.from) / span) * this.plot.w]);
      }
      return ticks;
    }

    rowLabels() {
      const { model } = this.props, { r0, r1 } = { r0: this.rowsFrom, r1: this.rowsTo };
      const tall = this.plot.h / (r1 - r0), step = Math.max(1, Math.ceil(13 / tall)), labels = [];
      for (let r = r0; r < r1; r += step) labels.push([model.label(r), this.plot.y + (r - r0 + (step > 1 ? 0 : 0.5)) * tall, step > 1]);
      return labels.filter(([, y, top]) => !top || y + 10 <= this.plot.h);
    }

    letters(pen) {
      pen.font = "11px system-ui, sans-serif";
      pen.fillStyle = RF.css("--soft");
      pen.textAlign = "right";
      for (const [text, y, top] of this.rowLabels()) {
        pen.textBaseline = top ? "top" : "middle";
        pen.fillText(this.short(pen, text), this.gutter - 6, y);
      }
      if (!this.props.axis) return;
      pen.textAlign = "center";
      pen.textBaseline = "top";
      const edge = this.canvas.clientWidth - 14;
      for (const [round, x] of this.ticks()) pen.fillText(round, Math.min(x, edge), this.plot.h + 5);
    }

    short(pen, text) {
      const room = this.gutter - 10;
      while (text.length > 2 && pen.measureText(text).width > room) text = text.slice(0, -2) + "…";
      return text;
    }

    // The cursor's line lies above the canvas, so that moving it paints nothing anew.
    cursor() {
      const { sync } = this.props, { line, plot } = this;
      const shown = sync.cursor !== null && plot && sync.cursor >= sync.from && sync.cursor < sync.to;
      line.hidden = !shown;
      if (!shown) return;
      const wide = plot.w / (sync.to - sync.from);
      line.style.width = Math.max(1, wide) + "px";
      line.style.height = plot.h + "px";
      line.style.transform = `translate(${plot.x + (sync.cursor - sync.from) * wide}px, ${plot.y}px)`;
    }

    at(event) {
      const box = this.canvas.getBoundingClientRect(), { plot } = this, { sync } = this.props;
      const x = (event.clientX - box.left - plot.x) / plot.w, y = (event.clientY - box.top - plot.y) / plot.h;
      if (x < 0 || x >= 1 || y < 0 || y >= 1) return null;
      return {
        round: Math.min(sync.rounds - 1, Math.floor(sync.from + x * (sync.to - sync.from))),
        row: Math.min(this.props.model.rows - 1, Math.floor(this.rowsFrom + y * (this.rowsTo - this.rowsFrom))),
      };
    }

    showRows(from, to) {
      const { model } = this.props;
      this.rowsFrom = Math.max(0, Math.min(from, model.rows - 1));
      this.rowsTo = Math.max(this.rowsFrom + 1, Math.min(to, model.rows));
      this.later();
    }

    svg(title) {
      const { canvas, plot, sheet } = this, width = canvas.clientWidth, height = canvas.clientHeight, ink = RF.css("--soft");
      const rows = this.rowLabels().map(([text, y, top]) => `<text x="${plot.x - 6}" y="${y + 30 + (top ? 10 : 4)}" text-anchor="end" fill="${ink}">${RF.xml(text)}</text>`);
      const ticks = this.ticks().map(([round, x]) => `<text x="${x}" y="${plot.h + 44}" text-anchor="middle" fill="${ink}">${round}</text>`);
      const picture = `<image x="${plot.x}" y="30" width="${plot.w}" height="${plot.h}" preserveAspectRatio="none" style="image-rendering:pixelated" href="${sheet.toDataURL()}"/>`;
      RF.saveSvg(title, width, height + 50, `<text x="8" y="18" font-size="13" font-weight="600" fill="${RF.css("--ink")}">${RF.xml(title)}</text>${picture}${rows.join("")}${ticks.join("")}`);
    }
  }

  const keys = {
    ArrowLeft: (heat, sync) => sync.set({ cursor: Math.max(0, (sync.cursor ?? sync.to) - 1) }),
    ArrowRight: (heat, sync) => sync.set({ cursor: Math.min(sync.rounds - 1, (sync.cursor ?? sync.from - 1) + 1) }),
    ArrowUp: (heat, sync) => sync.set({ row: Math.max(0, (heat.row ?? 1) - 1) }),
    ArrowDown: (heat, sync) => sync.set({ row: Math.min(heat.props.model.rows - 1, (heat.row ?? -1) + 1) }),
    "+": (heat, sync) => sync.zoom(0.5, sync.cursor), "=": (heat, sync) => sync.zoom(0.5, sync.cursor),
    "-": (heat, sync) => sync.zoom(2, sync.cursor),
    PageUp: (heat, sync) => sync.pan(-0.5), PageDown: (heat, sync) => sync.pan(0.5),
    Home: (heat, sync) => sync.set({ cursor: 0 }), End: (heat, sync) => sync.set({ cursor: sync.rounds - 1 }),
    Escape: (heat, sync) => { sync.show(0, sync.rounds); heat.showRows(0, heat.props.model.rows); },
  };

  // Dragging chooses rounds, and clients where rows may be zoomed; Shift and dragging moves; Ctrl and the wheel zooms.
  const follow = (heat, band) => {
    let start = null;
    const { canvas } = heat;
    const tell = (place) => {
      heat.row = place ? place.row : null;
      heat.props.sync.set({ cursor: place ? place.round : null });
      heat.props.onPoint(place ? { ...place, map: heat.props.name } : null);
    };
    canvas.onpointermove = (event) => {
      const place = heat.at(event);
      if (!start) { if (place || event.pointerType === "mouse") tell(place); return; }
      if (start.pan) {
        const { sync } = heat.props, step = Math.round(((start.x - event.clientX) / heat.plot.w) * (sync.to - sync.from));
        sync.show(start.from + step, start.to - start.from);
        return;
      }
      const box = canvas.getBoundingClientRect(), left = Math.min(start.x, event.clientX), top = Math.min(start.y, event.clientY);
      band.hidden = Math.abs(event.clientX - start.x) < 4;
      Object.assign(band.style, {
        left: left - box.left + "px", width: Math.abs(event.clientX - start.x) + "px",
        top: (heat.props.zoomRows ? top - box.top : 0) + "px",
        height: (heat.props.zoomRows ? Math.abs(event.clientY - start.y) : heat.plot.h) + "px",
      });
    };
    canvas.onpointerdown = (event) => {
      const place = heat.at(event), { sync } = heat.props;
      if (!place || event.button || event.pointerType === "touch") { if (place) tell(place); return; }
      start = { ...place, x: event.clientX, y: event.clientY, pan: event.shiftKey, from: sync.from, to: sync.to };
      canvas.setPointerCapture(event.pointerId);
    };
    canvas.onpointerup = (event) => {
      const from = start, end = heat.at(event), { sync } = heat.props;
      start = null;
      band.hidden = true;
      if (!from || !end || from.pan || Math.abs(event.clientX - from.x) < 4) return;
      const first = Math.min(from.round, end.round);
      sync.show(first, Math.abs(end.round - from.round) + 1);
      if (heat.props.zoomRows && Math.abs(event.clientY - from.y) > 12) heat.showRows(Math.min(from.row, end.row), Math.max(from.row, end.row) + 1);
    };
    canvas.onpointerleave = (event) => { if (!start && event.pointerType === "mouse" && document.activeElement !== canvas) tell(null); };
    canvas.ondblclick = () => keys.Escape(heat, heat.props.sync);
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page is to be scrolled
      event.preventDefault();
      const place = heat.at(event);
      heat.props.sync.zoom(event.deltaY > 0 ? 1.25 : 0.8, place ? place.round : undefined);
    }, { passive: false });
    canvas.onkeydown = (event) => {
      const act = keys[event.key], { sync, model } = heat.props;
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act(heat, sync);
      if (sync.row !== null) { heat.row = sync.row; sync.row = null; }
      if (sync.cursor !== null && (sync.cursor < sync.from || sync.cursor >= sync.to)) sync.show(sync.cursor - (sync.to - sync.from) / 2, sync.to - sync.from);
      heat.props.onPoint({ round: sync.cursor ?? sync.from, row: Math.min(heat.row ?? 0, model.rows - 1), map: heat.props.name });
    };
  };

  RF.Heat = (props) => {
    const canvas = useRef(), line = useRef(), band = useRef(), heat = useRef(null), theme = RF.useTheme(), holder = useRef();
    const width = RF.useWidth(holder);
    useEffect(() => {
      heat.current = new Heat(canvas.current, line.current, props);
      follow(heat.current, band.current);
      if (props.onReady) props.onReady(heat.current);
    }, []);
    useEffect(() => {
      const it = heat.current, grown = it.props.model.rows !== props.model.rows;
      it.props = props;
      if (grown) { it.rowsFrom = 0; it.rowsTo = props.model.rows; }
      const heard = (changes) => ("from" in changes || "to" in changes || "rounds" in changes ? it.later() : it.cursor());
      props.sync.heard.add(heard);
      it.draw();
      return () => props.sync.heard.delete(heard);
    }, [props.model, props.sync, theme, width, props.height, props.onPoint]);
    return html`<div class="heat" ref=${holder} style=${{ height: props.height + "px" }}>
      <canvas ref=${canvas} data-map=${props.name} tabindex="0" role="img" aria-label=${props.label}
        style=${{ width: "100%", height: props.height + "px" }}></canvas>
      <div class="cursor" ref=${line} hidden></div><div class="band" ref=${band} hidden></div></div>`;
  };
  RF.heatHeight = (rows, axis, tall = 13, most = 420) => Math.round(Math.min(most, Math.max(40, rows * tall))) + (axis ? AXIS : 0);
})();
