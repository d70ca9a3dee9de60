"""How the page looks, in light and dark, and the policy that lets a browser use nothing else."""

from base64 import b64encode
from hashlib import sha256

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1f2328; --faint: #59636e; --line: #d1d9e0; --band: #f6f8fa;
  --link: #0550ae; --good: #116329; --fair: #7d4e00; --bad: #a40e26;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #0d1117; --ink: #e6edf3; --faint: #9198a1; --line: #3d444d; --band: #151b23;
    --link: #79c0ff; --good: #56d364; --fair: #e3b341; --bad: #ff938a;
  }
}
body {
  font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 75rem; margin: 0 auto; padding: 0 1rem 2rem;
}
a { color: var(--link); }
h1 { font-size: 1.6rem; margin: 1rem 0 .5rem; }
h2 { font-size: 1.15rem; margin: 1.8rem 0 .4rem; }
p, ul { margin: .4rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0; }
dd { margin: 0; }
dt, caption, tfoot, footer { color: var(--faint); }
section { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .3rem; }
th, td {
  text-align: left; vertical-align: top; padding: .25rem .6rem;
  border-bottom: 1px solid var(--line);
}
thead th { background: var(--band); }
th, td:not(:last-child) { white-space: nowrap; }
td:last-child { min-width: 6rem; }
p, li, dd, td:last-child { overflow-wrap: anywhere; }
.good { color: var(--good); }
.fair { color: var(--fair); }
.bad { color: var(--bad); }
"""

POLICY = (
    "default-src 'none';"
    f" style-src 'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy: this style, and nothing else of any kind."""
