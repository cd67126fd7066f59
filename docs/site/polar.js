// The polar warp of docs/explained.md: a photograph, its polar image, and how both change with rotation and scale.
// The grid is that of whorl.to_polar: rows are radii from the centre to a corner pixel, columns angles from "right" towards "down".
(() => {
  "use strict";

  /** Bilinear sample with zeros outside; pixels are RGBA bytes of an n × n image. */
  function sample(pixels, n, row, column, out, at) {
    const r0 = Math.floor(row), c0 = Math.floor(column), fr = row - r0, fc = column - c0;
    out[at] = out[at + 1] = out[at + 2] = 0;
    for (let dr = 0; dr < 2; dr++) {
      const r = r0 + dr;
      if (r < 0 || r >= n) continue;
      for (let dc = 0; dc < 2; dc++) {
        const c = c0 + dc;
        if (c < 0 || c >= n) continue;
        const weight = (dr ? fr : 1 - fr) * (dc ? fc : 1 - fc), from = 4 * (r * n + c);
        for (let k = 0; k < 3; k++) out[at + k] += weight * pixels[from + k];
      }
    }
    out[at + 3] = 255;
  }

  /** Each pixel of the result is taken from where `place(row, column)` says. */
  function warp(pixels, n, place) {
    const out = new Float32Array(4 * n * n);
    for (let row = 0; row < n; row++) {
      for (let column = 0; column < n; column++) {
        const [r, c] = place(row, column);
        sample(pixels, n, r, c, out, 4 * (row * n + column));
      }
    }
    return out;
  }

  function toPolar(pixels, n) {
    const centre = (n - 1) / 2, step = (Math.SQRT2 * centre) / (n - 1);
    return warp(pixels, n, (row, column) => {
      const angle = (2 * Math.PI * column) / n;
      return [centre + row * step * Math.sin(angle), centre + row * step * Math.cos(angle)];
    });
  }

  /** Rotate by degrees, clockwise on screen, and scale about the centre. */
  function rotateAndScale(pixels, n, degrees, scale) {
    const centre = (n - 1) / 2, angle = (degrees * Math.PI) / 180, cos = Math.cos(angle) / scale, sin = Math.sin(angle) / scale;
    return warp(pixels, n, (row, column) => {
      const y = row - centre, x = column - centre;
      return [centre - sin * x + cos * y, centre + cos * x + sin * y];
    });
  }

  /** Shift columns by an angle, around the circle, and every row alike by what the scaling does at two thirds of the radius. */
  function shifted(polar, n, degrees, scale) {
    const columns = (degrees * n) / 360, rows = (scale - 1) * ((2 / 3) * (n - 1));
    const wide = new Float32Array(4 * n * n);
    for (let row = 0; row < n; row++) {
      for (let column = 0; column < n; column++) {
        const from = (((column - columns) % n) + n) % n, c0 = Math.floor(from), fc = from - c0;
        const r = row - rows, r0 = Math.floor(r), fr = r - r0, at = 4 * (row * n + column);
        for (let dr = 0; dr < 2; dr++) {
          if (r0 + dr < 0 || r0 + dr >= n) continue;
          for (let dc = 0; dc < 2; dc++) {
            const weight = (dr ? fr : 1 - fr) * (dc ? fc : 1 - fc), source = 4 * ((r0 + dr) * n + ((c0 + dc) % n));
            for (let k = 0; k < 3; k++) wide[at + k] += weight * polar[source + k];
          }
        }
        wide[at + 3] = 255;
      }
    }
    return wide;
  }

  /** Mean absolute difference over the radii that no corner is cut from: the circle that fits into the frame. */
  function difference(a, b, n) {
    const end = 4 * n * Math.floor((n - 1) / Math.SQRT2);
    let sum = 0;
    for (let i = 0; i < end; i++) if (i % 4 < 3) sum += Math.abs(a[i] - b[i]);
    return sum / ((end * 3) / 4);
  }

  function paint(canvas, values, n) {
    canvas.getContext("2d").putImageData(new ImageData(Uint8ClampedArray.from(values, Math.round), n, n), 0, 0);
  }

  function start(box, photo) {
    const n = photo.naturalWidth, [image, polar, stand] = box.querySelectorAll("canvas");
    for (const canvas of [image, polar, stand]) canvas.width = canvas.height = n;
    const pen = image.getContext("2d", { willReadFrequently: true });
    pen.drawImage(photo, 0, 0);
    const pixels = pen.getImageData(0, 0, n, n).data, original = toPolar(pixels, n);
    const angle = box.querySelector("[name=angle]"), scale = box.querySelector("[name=scale]"), said = box.querySelector("[role=status]");

    function draw() {
      const degrees = Number(angle.value), size = Number(scale.value);
      const seen = rotateAndScale(pixels, n, degrees, size), there = toPolar(seen, n), stands = shifted(original, n, degrees, size);
      paint(image, seen, n);
      paint(polar, there, n);
      paint(stand, stands, n);
      const columns = (degrees * n) / 360, pose = `rotated by ${degrees}°, scale ${size.toFixed(2)}`;
      angle.nextElementSibling.value = `${degrees}°`;
      scale.nextElementSibling.value = size.toFixed(2);
      image.setAttribute("aria-label", `The photograph, ${pose}`);
      polar.setAttribute("aria-label", `The polar image of the photograph, ${pose}`);
      stand.setAttribute("aria-label", `The polar image of the photograph as it was, columns shifted by ${columns.toFixed(1)}`);
      box.dataset.difference = difference(there, stands, n).toFixed(1);
      said.textContent = `${degrees}° is a shift of ${columns.toFixed(1)} of ${n} columns; ` +
        (size === 1 ? "no rows are shifted. " : `scale ${size.toFixed(2)} moves row 60 by ${(60 * (size - 1)).toFixed(1)} and row 120 by ${(120 * (size - 1)).toFixed(1)}. `) +
        `Within the circle that fits into the frame, the two polar images differ by ${box.dataset.difference} of 255 levels in the mean.`;
    }

    // Dragging the photograph rotates it by the angle, and scales it by the distance, from the centre.
    let held = null;
    const polarPlace = (event) => {
      const area = image.getBoundingClientRect();
      const x = event.clientX - area.left - area.width / 2, y = event.clientY - area.top - area.height / 2;
      return [(Math.atan2(y, x) * 180) / Math.PI, Math.max(8, Math.hypot(x, y))];
    };
    image.addEventListener("pointerdown", (event) => {
      held = [...polarPlace(event), Number(angle.value), Number(scale.value)];
      image.setPointerCapture(event.pointerId);
    });
    image.addEventListener("pointermove", (event) => {
      if (!held) return;
      const [now, far] = polarPlace(event);
      angle.value = ((((held[2] + now - held[0] + 180) % 360) + 360) % 360) - 180;
      scale.value = (held[3] * far) / held[1];
      draw();
    });
    for (const end of ["pointerup", "pointercancel"]) image.addEventListener(end, () => { held = null; });
    angle.addEventListener("input", draw);
    scale.addEventListener("input", draw);
    box.querySelector("button").addEventListener("click", () => { angle.value = 0; scale.value = 1; draw(); });
    box.hidden = false;
    draw();
  }

  const box = document.getElementById("polar-warp");
  if (box) {
    const photo = new Image();
    photo.addEventListener("load", () => start(box, photo));
    photo.src = box.dataset.photograph;
  }
})();
