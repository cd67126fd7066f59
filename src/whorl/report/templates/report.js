"use strict";
(() => {
  const drawn = JSON.parse(document.getElementById("figures").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const still = matchMedia("print");
  const unescaped = (text) => new DOMParser().parseFromString(text, "text/html").body.textContent;

  // plotly's code is in the page compressed; the page's policy knows the hash of what comes out.
  const unpack = async () => {
    const packed = document.getElementById("plotly");
    if (!packed) return;
    const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    packed.replaceWith(script);
  };

  // Colours come from the page's own style, so that figures follow light and dark.
  const themed = (figure, width) => {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const [ink, grid, raised] = ["--ink", "--grid", "--raised"].map(colour);
    const layout = structuredClone(figure.layout), narrow = innerWidth < 700;
    Object.assign(layout, { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true });
    layout.font.color = ink;
    layout.hoverlabel = { ...layout.hoverlabel, bgcolor: raised, bordercolor: grid, font: { color: ink } };
    const axes = Object.entries(layout.scene ?? layout).filter(([name]) => /^[xyz]axis\d*$/.test(name)).map(([, axis]) => axis);
    for (const axis of axes) Object.assign(axis, { gridcolor: grid, linecolor: grid, zerolinecolor: grid, color: ink });
    if (layout.scene) {
      layout.scene.uirevision = "kept"; // another pair or target is seen from the same side
      if (narrow) layout.height = 380;
      if (width < 700) {
        layout.scene.zaxis.title.text = "%";
        for (const axis of "xyz") layout.scene.camera.eye[axis] *= narrow ? 1.5 : 1.3; // further back, since the scene is narrow
      }
    }
    if (narrow && !layout.scene) layout.dragmode = false; // a finger scrolls the page
    return { data: figure.data, layout };
  };
  // Only buttons that we name: plotly offers one that would upload the figure.
  const config = (layout) => ({
    responsive: true, displaylogo: false, displayModeBar: innerWidth < 700 ? false : "hover", showSendToCloud: false, plotlyServerURL: "",
    modeBarButtons: [
      ["toImage"],
      layout.scene ? ["orbitRotation", "zoom3d", "pan3d", "resetCameraDefault3d"] : ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"],
    ],
  });
  // A legend of many lines may not press what it is about together, nor a few bars become a strip.
  const least = 250;
  const draw = async (place) => {
    if (!window.Plotly) return; // not unpacked yet
    const figure = drawn[Number(place.dataset.figure)];
    const { data, layout } = themed(figure, place.clientWidth);
    place.setAttribute("aria-label", figure.alt);
    if (layout.meta?.width) place.style.minWidth = `${layout.meta.width}px`;
    await Plotly.react(place, data, layout, config(layout));
    if (!place._fullLayout) return; // another view was chosen meanwhile
    const area = layout.scene || layout.yaxis.type === "category" ? layout.height : place._fullLayout._size.h;
    if (area < least) await Plotly.relayout(place, { height: layout.height + least - area });
    for (const entry of place.querySelectorAll(".legend .traces")) {
      const whole = document.createElementNS("http://www.w3.org/2000/svg", "title");
      whole.textContent = unescaped(entry.__data__?.[0]?.trace?.meta?.name ?? "");
      entry.querySelector(".legendtoggle")?.replaceChildren(whole);
    }
    place.dataset.drawn = place.dataset.figure;
  };
  const places = () => document.querySelectorAll(".plot[data-figure]");
  const drawAll = () => places().forEach(draw);
  dark.addEventListener("change", drawAll);
  still.addEventListener("change", drawAll);

  // Surfaces: one place, two menus. Combinations that were not measured cannot be chosen.
  const surface = document.getElementById("surface");
  if (surface) {
    const [subject, view] = ["surface-subject", "surface-view"].map((id) => document.getElementById(id));
    const known = JSON.parse(surface.dataset.choices);
    const find = () => known.find((c) => c.subject === Number(subject.value) && c.transfer === Number(view.value));
    const limit = () => {
      for (const option of view.options)
        option.disabled = !known.some((c) => c.subject === Number(subject.value) && c.transfer === Number(option.value));
      if (view.selectedOptions[0]?.disabled) view.value = [...view.options].find((o) => !o.disabled).value;
    };
    const change = () => {
      limit();
      for (const kind of ["surface", "map"]) {
        const place = document.getElementById(kind);
        place.dataset.figure = find()[kind];
        draw(place);
      }
    };
    subject.addEventListener("change", change);
    view.addEventListener("change", change);
    change();
  }

  // Profiles: those of one view are shown.
  const profiles = document.getElementById("profile-view");
  if (profiles) {
    const show = () => {
      for (const group of document.querySelectorAll("[data-profiles]")) {
        const chosen = group.dataset.profiles === profiles.value;
        group.hidden = !chosen;
        for (const place of group.querySelectorAll(".plot")) {
          if (chosen) place.dataset.figure = place.dataset.later;
          else { window.Plotly?.purge(place); delete place.dataset.figure; }
          if (chosen) draw(place);
        }
      }
    };
    profiles.addEventListener("change", show);
    show();
  }
  unpack().then(drawAll).catch((error) => {
    for (const place of places()) place.textContent = "This browser cannot draw the figure. The tables hold the same.";
    throw error;
  });

  // The command.
  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      const text = button.parentElement.querySelector("code");
      let done = true;
      try {
        await navigator.clipboard.writeText(text.textContent);
      } catch {
        // Older browsers give no clipboard to a local file.
        getSelection().selectAllChildren(text);
        done = document.execCommand("copy");
      }
      button.textContent = done ? "Copied" : "Press Ctrl-C";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  // Tables by pose.
  for (const button of document.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th"), table = head.closest("table"), body = table.tBodies[0];
      const descending = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const place = Number(head.dataset.column);
      const value = (row) => row.cells[place].dataset.value;
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === "" || y === "") return (x === "") - (y === ""); // undefined ones stay last
        return descending ? Number(y) - Number(x) : Number(x) - Number(y);
      });
      body.append(...rows);
    });
  }

  // Images, enlarged.
  const dialog = document.getElementById("light");
  if (dialog) {
    const tiles = [...document.querySelectorAll(".tile")];
    let at = 0;
    const show = (index) => {
      at = (index + tiles.length) % tiles.length;
      const tile = tiles[at], image = tile.querySelector("img");
      const frame = dialog.querySelector(".frame"), shown = frame.querySelector("img");
      frame.className = `frame ${tile.classList.contains("right") ? "right" : tile.classList.contains("wrong") ? "wrong" : ""}`;
      frame.querySelector(".badge").replaceChildren(...[tile.querySelector(".mark")].filter(Boolean).map((m) => m.cloneNode(true)));
      shown.src = image.src;
      shown.alt = image.alt;
      dialog.querySelector("p").textContent = image.alt;
    };
    tiles.forEach((tile, index) => tile.addEventListener("click", () => { show(index); dialog.showModal(); }));
    dialog.querySelector("[data-do=before]").addEventListener("click", () => show(at - 1));
    dialog.querySelector("[data-do=after]").addEventListener("click", () => show(at + 1));
    dialog.querySelector("[data-do=close]").addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    dialog.addEventListener("keydown", (event) => {
      if (event.key === "ArrowLeft") show(at - 1);
      if (event.key === "ArrowRight") show(at + 1);
    });
    dialog.addEventListener("close", () => tiles[at].focus());
  }

  // On paper nothing can be unfolded.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const part of folded) part.open = true;
  });
  addEventListener("afterprint", () => { for (const part of folded) part.open = false; });
})();
