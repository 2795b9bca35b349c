"""The page's CSS: light and dark, no fonts or files from elsewhere."""

from __future__ import annotations

CSS = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b2330; --soft: #5d6879; --line: #e3e7ed;
  --c1: #2a66e0; --c2: #12976b; --c3: #d9822b; --c4: #8a5cd6; --c5: #c9406b; --c6: #6b7688;
  --good: #0e7a56; --bad: #b8305b; --wash: #eef2f8;
  --bar: #ffffff; --b2: #0e7a56; --b3: #a85c10; --b4: #7a4bc8; --b5: #b8305b; --b6: #5d6879;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0f141b; --card: #171e28; --ink: #e6ebf2; --soft: #97a3b4; --line: #273140;
    --c1: #6ea0ff; --c2: #3ecb9b; --c3: #f0a95c; --c4: #b593f2; --c5: #f0799c; --c6: #8d99ab;
    --good: #3ecb9b; --bad: #f0799c; --wash: #1e2734;
    --bar: #10151c; --b2: var(--c2); --b3: var(--c3); --b4: var(--c4); --b5: var(--c5);
    --b6: var(--c6);
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; padding: 40px 24px 64px; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
main { max-width: 1080px; margin: 0 auto; }
header { margin-bottom: 24px; }
h1 { font-size: 26px; margin: 0 0 4px; letter-spacing: -.01em; }
h2 { font-size: 17px; margin: 36px 0 12px; }
h3 { font-size: 14px; margin: 0 0 8px; font-weight: 600; }
p { margin: 0 0 12px; max-width: 76ch; }
.soft { color: var(--soft); }
.state { display: inline-block; padding: 1px 10px; border-radius: 99px; font-size: 13px;
  font-weight: 600; background: var(--wash); vertical-align: 4px; margin-left: 8px; }
.state.succeeded { color: var(--good); } .state.failed, .state.cancelled { color: var(--bad); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); gap: 12px; }
.card, .panel { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.card { padding: 14px 16px; }
.card b { display: block; font-size: 24px; line-height: 1.25; letter-spacing: -.01em;
  font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 13px; }
.panel { padding: 18px 20px; }
.grid2 { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 12px; }
@media (max-width: 760px) { .grid2 { grid-template-columns: minmax(0, 1fr); } }
.chart { min-height: 200px; }
.uplot, .uplot * { font-family: inherit !important; }
.u-legend { font-size: 12.5px; color: var(--soft); text-align: left !important; }
.u-legend th, .u-legend td { border: 0; padding: 1px 3px; }
.u-legend .u-value { color: var(--ink); min-width: 3.6em; }
.b1 { background: var(--c1); } .b2 { background: var(--b2); } .b3 { background: var(--b3); }
.b4 { background: var(--b4); } .b5 { background: var(--b5); } .b6 { background: var(--b6); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 7px 14px 7px 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-size: 12px; font-weight: 600; }
tr:last-child td { border-bottom: 0; }
td.n, th.n { text-align: right; }
td.when { white-space: nowrap; }
.bar { display: flex; height: 30px; border-radius: 7px; overflow: hidden; background: var(--wash);
  margin: 4px 0 10px; }
.bar div { display: flex; align-items: center; justify-content: center; min-width: 0;
  color: var(--bar); font-size: 13px; font-weight: 600; white-space: nowrap; }
.pair { margin-bottom: 20px; }
.episode { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 14px 16px; min-width: 0; }
.episode .end { font-size: 13px; color: var(--soft); margin: 10px 0 0; }
.verdict { float: right; font-weight: 600; font-size: 13px; }
.verdict.good { color: var(--good); } .verdict.bad { color: var(--bad); }
.turn { margin-top: 10px; }
.turn .who { font-size: 11px; font-weight: 700; letter-spacing: .05em; text-transform: uppercase;
  color: var(--soft); }
.turn.assistant .who { color: var(--c1); }
pre { margin: 3px 0 0; padding: 9px 11px; background: var(--wash); border-radius: 7px;
  white-space: pre-wrap; overflow-wrap: anywhere;
  font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.turn.judge pre { box-shadow: inset 3px 0 0 var(--c4); }
td.wide { width: 40%; min-width: 90px; } td .bar { height: 16px; margin: 2px 0; }
.turn.assistant pre { box-shadow: inset 3px 0 0 var(--c1); }
details > summary { cursor: pointer; color: var(--soft); font-size: 13px; }
footer { margin-top: 40px; font-size: 13px; color: var(--soft); }
"""
