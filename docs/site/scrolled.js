// What is wider than the screen is scrolled by the keyboard too: tables, which the theme wraps, and formulas become reachable.
(() => {
  "use strict";
  const named = (one, name) => {
    one.setAttribute("tabindex", "0");
    one.setAttribute("role", "region");
    one.setAttribute("aria-label", name);
  };
  const heads = (wrap) => [...wrap.querySelectorAll("th")].map((cell) => cell.textContent.trim()).filter(Boolean);
  const reach = () => {
    for (const wrap of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
      named(wrap, `Table: ${heads(wrap).slice(0, 3).join(", ") || "values"}`);
    }
    for (const formula of document.querySelectorAll(".formula:not([tabindex])")) {
      if (formula.scrollWidth > formula.clientWidth) named(formula, "Formula");
    }
  };
  reach();
  new MutationObserver(reach).observe(document.body, { childList: true, subtree: true });
  window.addEventListener("resize", reach);
})();
