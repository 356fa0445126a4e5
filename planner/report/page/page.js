(() => {
  "use strict";
  const root = document.documentElement;
  const theme = document.getElementById("theme");
  const wish = window.matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : wish.matches);
  const name = () => { theme.textContent = dark() ? "Light theme" : "Dark theme"; };
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
  wish.addEventListener("change", name);
  theme.hidden = false;
  name();

  function select(code) {
    const range = document.createRange();
    range.selectNodeContents(code);
    const chosen = window.getSelection();
    chosen.removeAllRanges();
    chosen.addRange(range);
  }
  for (const button of document.querySelectorAll("button.copy")) {
    const code = document.getElementById(button.dataset.of);
    const said = (text) => {
      button.textContent = text;
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    };
    button.addEventListener("click", () => {
      const denied = () => { select(code); said("Selected"); };
      if (!navigator.clipboard) { denied(); return; }
      navigator.clipboard.writeText(code.textContent).then(() => said("Copied"), denied);
    });
    button.hidden = false;
  }

  const opened = [];
  window.addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("#warnings details:not([open])")) {
      fold.open = true;
      opened.push(fold);
    }
  });
  window.addEventListener("afterprint", () => { for (const fold of opened.splice(0)) fold.open = false; });

  function unfold() {
    const target = document.getElementById(location.hash.slice(1));
    const fold = target && target.querySelector(":scope > details.fold");
    if (fold && !target.querySelector(":scope > .scroll")) fold.open = true;
  }
  window.addEventListener("hashchange", unfold);
  unfold();
})();
