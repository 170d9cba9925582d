"""The style sheet and the one script of the page.

Series colours are those of Okabe and Ito, made darker on paper and lighter in the dark, so that people who
see colours differently can tell them apart; markers and dashes say the same again.
"""

from __future__ import annotations

__all__ = ["SCRIPT", "STYLE"]

# On a narrow screen a row of the matrix is its question above its budgets, so their number must be known.
_COLUMNS = "\n".join(
    f"  .n{count} tr {{ grid-template-columns: repeat({count}, minmax(44px, 1fr)); }}" for count in range(1, 21)
)

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbfaf7; --card: #ffffff; --ink: #1c2024; --soft: #5a6169; --rule: #dedbd3; --grid: #eceae4;
  --s0: #0067a8; --s1: #00805d; --s2: #c94f00; --s3: #a8478a; --s4: #7a6200; --s5: #4a5560;
  --good: #0067a8; --good-wash: #e3eff7; --bad: #b34700; --bad-wash: #fbebe0; --link: #0067a8;
  --serif: "Iowan Old Style", "Palatino Linotype", Palatino, "Source Serif 4", "Noto Serif", Georgia, serif;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", Arial, sans-serif;
  --mono: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --card: #1a1e22; --ink: #e7e5df; --soft: #a1a8af; --rule: #343a41; --grid: #272c32;
    --s0: #5ab4ef; --s1: #35c496; --s2: #ff9147; --s3: #e39bcb; --s4: #e3ca4e; --s5: #b9c2cb;
    --good: #7cc4f3; --good-wash: #16303f; --bad: #ffa266; --bad-wash: #3d2616; --link: #7cc4f3;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 var(--sans); }
main { max-width: 1180px; margin: 0 auto; padding: 0 24px 72px; }
header { padding: 64px 0 8px; }
h1, h2, h3, h4 { font-family: var(--serif); font-weight: 500; line-height: 1.2; text-wrap: balance; }
h1 { font-size: clamp(32px, 5vw, 52px); letter-spacing: -0.015em; margin: 0 0 16px; }
h2 { font-size: clamp(23px, 2.6vw, 29px); letter-spacing: -0.01em; margin: 0 0 12px; }
h2 code { font-size: 0.6em; vertical-align: 0.15em; color: var(--soft); background: var(--grid);
  padding: 2px 8px; border-radius: 99px; }
h2.setting { margin: 72px 0 0; padding-top: 24px; border-top: 3px double var(--rule); }
h3 { font-size: 18px; font-weight: 600; margin: 0 0 4px; }
h4 { font: 600 13px/1.3 var(--sans); margin: 0 0 6px; }
h4.ahead { color: var(--good); }
h4.behind { color: var(--bad); }
p { margin: 0 0 12px; text-wrap: pretty; }
section { margin-top: 56px; }
code, pre { font-family: var(--mono); font-size: 0.9em; overflow-wrap: anywhere; }
pre { background: var(--card); border: 1px solid var(--rule); border-radius: 6px; padding: 12px 16px; margin: 0 0 12px;
  white-space: pre-wrap; }
.eyebrow { color: var(--soft); font-size: 14px; letter-spacing: 0.02em; margin: 0 0 8px; }
.headline { font: 400 clamp(19px, 2.2vw, 24px)/1.4 var(--serif); max-width: 34em; margin: 0 0 28px; }
.prose { max-width: 68ch; }
.story { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr)); gap: 16px 40px; }
.story > div { max-width: 68ch; }
.story p { font-size: 15px; line-height: 1.5; }
.note { color: var(--soft); font-size: 13px; line-height: 1.45; margin: 8px 0 0; max-width: 90ch; }
.facts { display: flex; flex-wrap: wrap; margin: 0; border-top: 1px solid var(--rule);
  border-bottom: 1px solid var(--rule); }
.facts div { flex: 1 1 130px; padding: 12px 16px 12px 0; }
.facts dt { color: var(--soft); font-size: 13px; }
.facts dd { margin: 0; font: 500 20px/1.3 var(--serif); font-variant-numeric: tabular-nums; white-space: nowrap; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 24px; }
.chart { margin: 0; padding: 20px 22px 16px; background: var(--card); border: 1px solid var(--rule);
  border-radius: 8px; display: flex; flex-direction: column; min-width: 0; break-inside: avoid; }
.chart figcaption { flex: 1 0 auto; }
.reading { font-size: 15px; line-height: 1.45; margin: 0 0 12px; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 0 0 10px;
  padding: 0; font-size: 13px; }
.legend li { display: flex; align-items: center; gap: 6px; }
.swatch { flex: none; overflow: visible; }
.axis { color: var(--soft); font-size: 12px; margin: 0 0 8px; }
.axis.across { text-align: center; margin: 30px 0 0; }
.plot { padding: 4px 12px 0 64px; }
.plot svg { display: block; overflow: visible; }
.tick { fill: var(--soft); font: 12px var(--sans); font-variant-numeric: tabular-nums; }
.end { text-anchor: end; }
.middle { text-anchor: middle; }
.grid { stroke: var(--grid); stroke-width: 1; }
.base { stroke: var(--soft); stroke-width: 1; opacity: 0.6; }
.reference { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 2 3; }
.curve { stroke-width: 2; stroke-linecap: round; }
.curve.s0 { stroke-width: 3; }
.curve.opponent { stroke-dasharray: 7 5; }
.ideal { stroke-width: 2; stroke-linecap: round; stroke-dasharray: 0.1 5; opacity: 0.8; }
.ideal.plain { stroke: var(--soft); }
.spread { stroke-width: 1.5; opacity: 0.7; }
.shape { stroke: var(--card); stroke-width: 1.5; }
.target { fill: transparent; }
line.s0 { stroke: var(--s0); } path.s0 { fill: var(--s0); }
line.s1 { stroke: var(--s1); } path.s1 { fill: var(--s1); }
line.s2 { stroke: var(--s2); } path.s2 { fill: var(--s2); }
line.s3 { stroke: var(--s3); } path.s3 { fill: var(--s3); }
line.s4 { stroke: var(--s4); } path.s4 { fill: var(--s4); }
line.s5 { stroke: var(--s5); } path.s5 { fill: var(--s5); }
.mark:hover .shape { stroke: var(--ink); }
details { margin-top: 12px; font-size: 14px; }
summary { cursor: pointer; color: var(--link); width: fit-content; padding: 2px 0; }
summary:focus-visible { outline: 2px solid var(--link); outline-offset: 3px; border-radius: 2px; }
details.more { margin-top: 20px; font-size: inherit; }
details.more > summary { font-size: 15px; }
details.more[open] > summary { margin-bottom: 16px; }
.scroll { overflow-x: auto; margin-top: 6px; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: right; padding: 5px 10px; border-bottom: 1px solid var(--grid); font-weight: 400;
  white-space: nowrap; }
thead th { color: var(--soft); vertical-align: bottom; border-bottom-color: var(--rule); white-space: normal; }
tr > :first-child { text-align: left; padding-left: 0; }
.spread-text { color: var(--soft); display: block; font-size: 12px; }
.duel { margin: 24px 0 32px; }
.matrix { font-size: 14px; border-collapse: separate; border-spacing: 3px;
  margin: 0 0 16px -3px; width: calc(100% + 3px); }
.matrix th, .matrix td { border: 0; padding: 8px 10px; }
.matrix thead th { text-align: center; padding: 0 10px 2px; }
.matrix tbody th { white-space: normal; min-width: 170px; padding-left: 3px; line-height: 1.3; }
.matrix td { text-align: center; border-radius: 4px; background: var(--grid); color: var(--soft); width: 11%; }
.matrix td.ahead { background: var(--good-wash); color: var(--good); font-weight: 600; }
.matrix td.behind { background: var(--bad-wash); color: var(--bad); font-weight: 600; }
.matrix td.absent { background: transparent; }
.matrix td.level { color: var(--ink); }
.matrix td .spread-text { font-weight: 400; }
.claim { margin: 20px 0 8px; }
.claim .matrix td { white-space: normal; }
.overview td, .overview thead th { text-align: left; white-space: normal; }
.overview td:nth-child(2) { min-width: 190px; }
a { color: var(--link); }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr)); gap: 16px 40px; }
.pair ul { margin: 0; padding-left: 18px; font-size: 15px; line-height: 1.45; }
.pair li { margin-bottom: 6px; }
.checks { list-style: none; margin: 0; padding: 0; display: grid;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: 16px 40px; }
.checks li { display: flex; gap: 12px; }
.checks p { margin: 0; color: var(--soft); font-size: 14px; line-height: 1.45; }
.checks span { font-weight: 700; flex: none; width: 1em; }
.holds { color: var(--good); }
.broken { color: var(--bad); }
.unknown { color: var(--soft); }
.timings, .plain { max-width: 720px; font-size: 14px; }
.plain td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.plain th { width: 30%; }
.wide { width: 55%; min-width: 90px; padding-right: 0; }
.bar { display: block; }
.bar rect { fill: var(--s0); }
.was { fill: var(--soft); opacity: 0.35; }
.got { fill: var(--s0); }
.told { stroke-width: 2; }
line.miss, path.miss { stroke: var(--bad); stroke-width: 2; }
.heat .wrong { fill: var(--bad); }
.listed { columns: 2 340px; padding-left: 18px; font-size: 14px; overflow-wrap: anywhere; }
@media (max-width: 560px) {
  main { padding: 0 16px 48px; }
  header { padding-top: 36px; }
  section { margin-top: 44px; }
  .chart { padding: 16px 14px 12px; }
  .plot { padding-left: 56px; }
  .facts div { flex-basis: 45%; padding: 8px 12px 8px 0; }
  .matrix, .matrix thead, .matrix tbody { display: block; }
  .matrix { margin: 0 0 16px; width: 100%; }
  .matrix tr { display: grid; gap: 3px; }
  .matrix thead tr > :first-child { display: none; }
  .matrix tbody th { grid-column: 1 / -1; padding: 8px 3px 2px; }
  .matrix td { width: auto; padding: 7px 1px; font-size: 12px; white-space: normal; }
  .spare, .overview thead { display: none; }
  .overview, .overview tbody, .overview tr, .overview tr > * { display: block; }
  .overview tr { border-bottom: 1px solid var(--grid); padding: 8px 0; }
  .overview tr > * { border: 0; padding: 2px 0; }
  .overview td[data-name]::before { content: attr(data-name) ": "; color: var(--soft); }
  .matrix thead th { padding: 0; font-size: 12px; }
  /* columns */
}
@media print {
  :root { --paper: #fff; --card: #fff; --ink: #000; --soft: #444; --rule: #bbb; --grid: #e4e4e4;
    --s0: #0067a8; --s1: #00805d; --s2: #c94f00; --s3: #a8478a; --s4: #7a6200; --s5: #4a5560;
    --good: #0067a8; --good-wash: #e3eff7; --bad: #b34700; --bad-wash: #fbebe0; --link: #000; }
  body { font-size: 10.5pt; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  header { padding-top: 0; }
  section { margin-top: 24pt; }
  h2, h3, section > .prose { break-after: avoid; }
  tr, .duel { break-inside: avoid; }
  .charts { grid-template-columns: 1fr 1fr; gap: 12pt; }
  .scroll { overflow: visible; }
  .chart { padding: 10pt; }
  .chart table, .chart .spread-text { font-size: 6.5pt; line-height: 1.25; }
  .chart th, .chart td { padding: 2pt 3pt; white-space: normal; }
  .plot svg { height: 232px; }
  .runs { font-size: 5.5pt; }
  .runs th, .runs td { padding: 1pt 2pt; white-space: normal; }
  summary { list-style: none; }
  details:not([open]) { display: none; }
  .question { break-inside: avoid; }
}
""".replace("  /* columns */", _COLUMNS)

SCRIPT = """
(() => {
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll(".chart > details:not([open])")];
    opened.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((one) => { one.open = false; }));
})();
"""
