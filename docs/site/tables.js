// A table that is wider than the screen is scrolled by the keyboard too: the theme wraps it, and this makes the wrap reachable.
(() => {
  "use strict";
  const reach = () => {
    for (const wrap of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
      wrap.tabIndex = 0;
      wrap.setAttribute("role", "region");
      wrap.setAttribute("aria-label", `Table: ${[...wrap.querySelectorAll("th")].slice(0, 3).map((cell) => cell.textContent.trim()).filter(Boolean).join(", ") || "values"}`);
    }
  };
  reach();
  new MutationObserver(reach).observe(document.body, { childList: true, subtree: true });
})();
