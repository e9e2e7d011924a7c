"""Starts `warploom serve` for a script and stops it at the end."""

import contextlib
import re
import subprocess


@contextlib.contextmanager
def served(binary, *options):
    """Yields the base URL of a server on a free port."""
    command = [binary, "serve", "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            found = re.search(r"http://\S+/v1", line)
            if found:
                break
        else:
            raise RuntimeError("the server did not start: " + "".join(lines))
        yield found.group()
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stderr.close()
