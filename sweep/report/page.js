// Draws the figures from the JSON beside them, and shows the traces that selectors and legends ask for.
(function () {
  "use strict";

  function hoverTexts(trace) {
    const words = trace.meta.words;
    return trace.z.map((row, i) => row.map((code, j) => {
      const rate = trace.customdata[i][j];
      const speed = rate === null || trace.meta.hidden.includes(code) ? "" : "<br>" + rate.toLocaleString("en") + " tokens/s per device";
      return "batch " + trace.meta.batches[i].toLocaleString("en") + ", context " +
        trace.meta.contexts[j].toLocaleString("en") + "<br>" + words[code] + speed;
    }));
  }

  function wanted(trace, chosen, hidden) {
    const meta = trace.meta || {};
    return Object.keys(chosen).every((key) => !(key in meta) || meta[key] === chosen[key]) &&
      !hidden.some(([key, value]) => meta[key] === value);
  }

  function hintAtWideTables() {
    document.querySelectorAll(".scroll").forEach((box) => {
      box.previousElementSibling.classList.toggle("shown", box.scrollWidth > box.clientWidth + 1);
    });
  }
  window.addEventListener("resize", hintAtWideTables);
  hintAtWideTables();

  document.querySelectorAll(".panel").forEach((panel) => {
    const selects = Array.from(panel.querySelectorAll("select"));
    const buttons = Array.from(panel.querySelectorAll("button.entry"));
    const plots = Array.from(panel.querySelectorAll(".plot"));

    function visibility(traces) {
      const chosen = Object.fromEntries(selects.map((select) => [select.dataset.key, select.value]));
      const hidden = buttons.filter((button) => button.getAttribute("aria-pressed") === "false")
        .map((button) => [button.dataset.key, button.dataset.value]);
      return traces.map((trace) => wanted(trace, chosen, hidden));
    }

    plots.forEach((plot) => {
      const figure = JSON.parse(document.getElementById(plot.id + "-data").textContent);
      const shown = visibility(figure.data);
      figure.data.forEach((trace, place) => {
        trace.visible = shown[place];
        if (trace.type === "heatmap" && !trace.text) trace.text = hoverTexts(trace);
      });
      Plotly.newPlot(plot, figure.data, figure.layout, figure.config);
    });

    const update = () => plots.forEach((plot) => Plotly.restyle(plot, { visible: visibility(plot.data) }));
    selects.forEach((select) => select.addEventListener("change", update));
    buttons.forEach((button) => button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") === "false"));
      update();
    }));
  });
})();
