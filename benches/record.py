"""Rows of `measured.json`: figures by device, model and program. The other scripts add rows; `picture.py` draws them."""

import datetime
import json
import pathlib
import statistics

FILE = pathlib.Path(__file__).with_name("measured.json")
# The key of a row; a new measurement replaces the row with the same key.
KEY = ("device", "model", "what", "by", "through", "compute")


def load(path=FILE):
    return json.loads(path.read_text())["rows"] if path.exists() else []


def row(by, device, through, model, compute, what, rates, unit="tokens/s"):
    """A row of runs: their median, the least and the most."""
    return {
        "device": device, "model": model, "what": what, "by": by, "through": through, "compute": compute,
        "median": round(statistics.median(rates), 1), "least": round(min(rates), 1), "most": round(max(rates), 1),
        "runs": len(rates), "unit": unit, "date": datetime.date.today().isoformat(),
    }


def add(rows, path=FILE):
    """Writes these rows beside those of others; one row a line, so that changes can be read."""
    key = lambda r: tuple(str(r[name]) for name in KEY)
    kept = {key(r): r for r in load(path)} | {key(r): r for r in rows}
    lines = ",\n".join("  " + json.dumps(kept[k]) for k in sorted(kept))
    path.write_text('{ "rows": [\n' + lines + "\n] }\n")
