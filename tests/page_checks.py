"""What every page of ours must hold, checked in a browser: the report, the playground, the documentation.

No error on the console, nothing wider than the screen, contrast and names by axe-core (what Lighthouse runs), and every
control within reach of the keyboard, with a focus that can be seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from browser import Opened

STANDARD = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")
"""Rules of axe-core: WCAG 2.1, level AA."""
BEYOND = ("heading-order", "page-has-heading-one", "landmark-one-main", "image-redundant-alt")
"""Rules that the standard leaves open."""

# A control is what takes the keyboard's focus. Of radio buttons with one name the arrows reach the others. What is
# folded away, disabled or out of sight is none; nor is a region that can be focused only because it scrolls.
_CONTROLS = """(left) => {
  const wanted = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]';
  const radios = new Set();
  const controls = [...document.querySelectorAll(wanted)].filter((one) => {
    if (one.disabled || one.tabIndex < 0 || one.closest('[inert]')) return false;
    if (left.some((out) => one.closest(out))) return false;
    if (!one.checkVisibility({ visibilityProperty: true }) || !one.getClientRects().length) return false;
    if (one.tagName === 'SUMMARY' && one.parentElement.querySelector(':scope > summary') !== one) return false;
    if (one.type !== 'radio' || !one.name) return true;
    if (radios.has(one.name)) return false;
    const chosen = document.querySelector(`input[name="${CSS.escape(one.name)}"]:checked`);
    return (chosen ?? one) === one && radios.add(one.name);
  });
  const look = (one) => {
    const all = [one, one.parentElement, one.closest('label')].filter(Boolean);
    return all.flatMap((each) => ['', '::before', '::after'].map((part) => {
      const style = getComputedStyle(each, part);
      const outline = style.outlineStyle === 'none' || style.outlineWidth === '0px' ? '' : style.outline;
      const rest = ['boxShadow', 'borderColor', 'backgroundColor', 'textDecoration', 'left', 'opacity'];
      return [outline, ...rest.map((name) => style[name])].join();
    })).join('|');
  };
  const called = (one) => {
    const name = one.id || one.getAttribute('aria-label') || one.textContent.trim() || one.outerHTML;
    return `${one.tagName.toLowerCase()} ${name.slice(0, 80)}`;
  };
  document.activeElement?.blur();
  const before = new Map(controls.map((one) => [one, look(one)]));
  const reached = new Set(), dim = new Set();
  // No fading: the look is taken at once.
  const still = new CSSStyleSheet();
  still.replaceSync('*, *::before, *::after { transition: none !important; animation: none !important; }');
  document.adoptedStyleSheets.push(still);
  const note = ({ target: at }) => {
    if (!before.has(at) || document.activeElement !== at) return;
    reached.add(at);
    if (look(at) === before.get(at)) dim.add(at);
  };
  document.addEventListener('focusin', note);
  window.whorlChecks = {
    left: () => controls.length - reached.size,
    end() {
      document.removeEventListener('focusin', note);
      document.adoptedStyleSheets.pop();
      document.activeElement?.blur();
      return [controls.filter((one) => !reached.has(one)).map(called), [...dim].map(called)];
    },
  };
  return controls.length;
}"""

_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  if (Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) <= width) return [];
  const over = [...document.body.querySelectorAll('*')].filter((one) => one.getBoundingClientRect().right > width + 1);
  const deepest = over.filter((one) => !over.some((other) => other !== one && one.contains(other)));
  return [`the page is ${document.documentElement.scrollWidth} px wide on a screen of ${width}`,
    ...deepest.slice(0, 5).map((one) => `too wide: ${one.outerHTML.slice(0, 120)}`)];
}"""


def page_faults(shown: Opened, *, keyboard: bool = True, left_out: Sequence[str] = ()) -> list[str]:
    """Everything that is wrong with a page as it is now, a line each; none if it is well.

    Args:
        shown: the page; what it did that it should not counts too.
        keyboard: whether to walk through all controls with the Tab key, a few milliseconds each.
        left_out: selectors of parts that are not ours, such as a library's own toolbar.
    """
    faults = [*shown.trouble, *shown.page.evaluate(_WIDE), *axe_faults(shown.page, left_out=left_out)]
    return [*faults, *keyboard_faults(shown.page, left_out=left_out)] if keyboard else faults


def axe_faults(page: Any, *, left_out: Sequence[str] = ()) -> list[str]:
    """What axe-core finds: contrast below AA, images and controls without a name, structure that cannot be read."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is in torchwhorl[dev]")
    rules = {rule: {"enabled": True} for rule in BEYOND}
    options = {"runOnly": {"type": "tag", "values": list(STANDARD)}, "rules": rules, "resultTypes": ["violations"]}
    context = {"exclude": [[part] for part in left_out]} if left_out else None
    found = axe.Axe().run(page, context=context, options=options).response["violations"]
    return [
        f"{one['id']}: {node['html'][:160]} {node.get('failureSummary', '').replace(chr(10), ' ')[:240]}"
        for one in found
        for node in one["nodes"]
    ]


def keyboard_faults(page: Any, *, left_out: Sequence[str] = ()) -> list[str]:
    """Controls that the Tab key does not reach, and those on which the focus cannot be seen."""
    count = page.evaluate(_CONTROLS, list(left_out))
    # Regions that scroll take the focus too, and so does the browser itself between rounds.
    for press in range(2 * count + 20):
        page.keyboard.press("Tab")
        if press % 10 == 9 and not page.evaluate("window.whorlChecks.left()"):
            break
    unreached, unseen = page.evaluate("window.whorlChecks.end()")
    return [f"Tab never reaches: {one}" for one in unreached] + [f"focus cannot be seen on: {one}" for one in unseen]
