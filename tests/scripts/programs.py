"""The programs that steps need: the table `program` of tests/steps.toml."""

import subprocess
import threading

from processes import run_session


def names_of(steps):
    """The names of the programs that these steps need or use."""
    return dict.fromkeys(name for step in steps for name in [*step.get("needs", []), *step.get("uses", [])])


class Programs:
    """The programs that steps need. Each is searched, and installed, once."""

    def __init__(self, table, environment, root):
        self.table, self.environment, self.root = table, environment, root
        # Two rustups at once would write the same folder.
        rustup = threading.Lock()
        self.locks = {name: rustup if program.get("from", "").startswith("rustup") else threading.Lock() for name, program in table.items()}
        self.found = {}

    def search(self, name, **more):
        options = {"cwd": self.root, "env": self.environment | more, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        status, path, errors = run_session(["bash", "-euo", "pipefail", "-c", self.table[name]["find"]], 1800, **options)
        reasons = ["not installed within 1800 s"] if status is None else errors.strip().splitlines() or ["it does not run"]
        return path.strip() if status == 0 else None, reasons[-1]

    def provide(self, name):
        """Returns the reason why a program is missing, or None. Its variable has its path, or the reason."""
        with self.locks[name]:
            if name not in self.found:
                path, reason = self.search(name)
                variable = self.table[name].get("variable", "_")
                self.environment.pop(variable, None)
                self.environment |= {variable + "_MISSING": reason} if path is None else {variable: path}
                self.found[name] = f"no {name} ({reason})" if path is None else None
        return self.found[name]

    def download(self, steps):
        """Provides the programs that are not built here, in the order of the steps."""
        for name in names_of(steps):
            if self.table[name].get("from", "rustup") not in ("rustup", "rustup or Debian", "crates.io"):
                self.provide(name)

    def print_missing(self, steps, provision, folder):
        sources = {name: self.table[name]["from"] for name in names_of(steps) if "from" in self.table[name]}
        missing = [name for name in sources if self.search(name, POOLHOUSE_INSTALL="no")[0] is None]
        print("Missing programs, installed before their step begins:" if missing else "No program is missing, and nothing will be installed.")
        outside = "by rustup, in the system" if provision else "not without --provision: by rustup, in the system; its steps are skipped"
        for name in missing:
            print(f"  {name:<24} {outside if sources[name] == 'rustup' else f'from {sources[name]}, below {folder}'}")
