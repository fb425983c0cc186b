//! The plan of `tests/run`, and what it may install.
#![forbid(unsafe_code)]
#![cfg(unix)]

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, id};

/// A folder for the output of `tests/run`, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("poolhouse-run-{name}-{}", id()));
        fs::create_dir_all(path.join("bin")).expect("a folder");
        Self(path)
    }

    /// Adds a program that precedes those of the system.
    fn add_program(&self, name: &str, script: &str) {
        let path = self.0.join("bin").join(name);
        fs::write(&path, format!("#!/bin/bash\n{script}\n")).expect("a program");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    }

    /// Runs `tests/run` and returns its exit status and its output.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
        let path = env::var("PATH").unwrap_or_default();
        let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("run"))
            .args(arguments)
            .env("PATH", format!("{}:{path}", self.0.join("bin").display()))
            .env("CARGO_TARGET_DIR", self.0.join("target"))
            .env("POOLHOUSE_FIGURES", self.0.join("target/run/figures"))
            .env_remove("CI")
            .env_remove("POOLHOUSE_PROVISION")
            .envs(variables.iter().copied())
            .output()
            .expect("tests/run");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Adds a toolchain without rustfmt, and a rustup that only records its calls in this file.
    fn add_toolchain(&self) -> PathBuf {
        let called = self.0.join("rustup-was-called");
        let path = env::var("PATH").unwrap_or_default();
        self.add_program("cargo", &format!("[[ $1 == fmt ]] && exit 1\nPATH='{path}' exec cargo \"$@\""));
        self.add_program("rustup", &format!("echo \"$@\" >>'{}'", called.display()));
        called
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_plan_has_every_step_and_installs_nothing() {
    let folder = Folder::new("plan");
    let (_, list) = folder.run(&["--list"], &[]);
    for (options, tier) in [(&["--plan"][..], "full"), (&["--plan", "--quick"], "quick")] {
        let steps = list.lines().filter(|line| line.split_whitespace().skip(1).any(|word| word == tier));
        let steps: Vec<&str> = steps.filter_map(|line| line.split_whitespace().next()).collect();
        assert!(steps.contains(&"clippy"), "{list}");
        let (status, plan) = folder.run(options, &[]);
        assert_eq!(status, Some(0), "{plan}");
        let planned = plan.lines().skip(1).map_while(|line| line.strip_prefix("  ")?.split_whitespace().next());
        assert_eq!(planned.take(steps.len()).collect::<Vec<_>>(), steps, "{plan}");
        assert!(plan.contains(&format!("  {} in all", steps.len())), "{plan}");
    }
    let installed = fs::read_dir(folder.0.join("target")).expect("a target folder");
    let installed: Vec<_> = installed.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    assert_eq!(installed, ["run"]);
}

#[test]
fn the_system_is_changed_only_with_provision() {
    let folder = Folder::new("provision");
    let called = folder.add_toolchain();

    let (status, output) = folder.run(&["--only", "fmt"], &[]);
    assert!(output.contains("not without --provision"), "{output}");
    let reason = "skipped: fmt: no rustfmt (the component rustfmt is not installed (./tests/run --provision";
    assert!(output.contains(reason), "{output}");
    assert_eq!(status, Some(0), "{output}");
    assert!(output.ends_with("\n0 passed, 0 failed, 1 skipped\n"), "{output}");
    assert!(!called.exists(), "{output}");

    let (_, output) = folder.run(&["--only", "fmt", "--provision"], &[]);
    assert!(output.contains("by rustup, in the system"), "{output}");
    assert_eq!(fs::read_to_string(&called).expect("rustup was called"), "component add rustfmt\n");
}

#[test]
fn a_missing_program_is_a_failure_in_ci() {
    let folder = Folder::new("ci");
    folder.add_toolchain();
    let (status, output) = folder.run(&["--only", "fmt"], &[("CI", "true")]);
    assert_eq!(status, Some(1), "{output}");
    assert!(output.contains("(with CI=true that is a failure)"), "{output}");
    assert!(output.contains("\nfailed: fmt\n"), "{output}");
    assert!(output.ends_with("\n0 passed, 1 failed, 0 skipped; failed: fmt\n"), "{output}");
}

#[test]
fn an_unknown_step_is_a_wrong_command_line() {
    assert_eq!(Folder::new("unknown").run(&["--only", "unknown"], &[]).0, Some(2));
}

#[test]
fn a_step_is_ended_with_its_processes_at_its_limit() {
    let folder = Folder::new("limit");
    let process = folder.0.join("process");
    folder.add_program("cargo", &format!("sleep 600 &\necho $! >'{}'\nwait", process.display()));
    // On a busy machine the step may be ended before the process is started.
    for seconds in ["2", "10", "60"] {
        let (status, output) = folder.run(&["--only", "lock"], &[("POOLHOUSE_STEP_SECONDS", seconds)]);
        assert_eq!(status, Some(1), "{output}");
        assert!(output.contains(&format!("ended after {seconds} s")), "{output}");
        if fs::read_to_string(&process).is_ok_and(|id| !id.is_empty()) {
            break;
        }
    }
    let process = fs::read_to_string(process).expect("a process was started");
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(" Z "), "{stat}");
}

/// The build of a later step has the least weight of all processes, until a step waits for it. Linux
/// weighs sessions, if it groups processes by them, before it compares their niceness.
#[cfg(target_os = "linux")]
#[test]
fn a_build_ahead_has_the_least_weight_until_its_step_waits_for_it() {
    let folder = Folder::new("ahead");
    let weights = folder.0.join("weights");
    let group = Path::new("/proc/self/autogroup");
    // `cargo metadata`, the step before, ends when the build has begun.
    let script = format!(
        "weight() {{ echo \"$(nice) $(grep -o 'nice .*' {group} 2>/dev/null)\" >>'{weights}'; }}
        [[ $1 == metadata ]] || weight
        for _ in {{1..600}}; do
            if [[ $1 == metadata ]]; then
                [[ -s '{weights}' ]] && exit 0
            else
                [[ ! -e {group} ]] || grep -q 'nice 0' {group} && break
            fi
            sleep 0.1
        done
        weight
        exit 1",
        group = group.display(),
        weights = weights.display(),
    );
    folder.add_program("cargo", &script);
    folder.add_program("cargo-fuzz", "exit 0");
    // The build fails, so nothing is fuzzed.
    let (status, output) = folder.run(&["--only", "lock", "--only", "fuzz"], &[("CXX", "true")]);
    assert_eq!(status, Some(1), "{output}");
    assert!(output.ends_with("\n1 passed, 1 failed, 0 skipped; failed: fuzz\n"), "{output}");
    let weights = fs::read_to_string(weights).expect("cargo was called");
    let ahead = if group.exists() { "19 nice 19\n19 nice 0\n" } else { "19 \n19 \n" };
    assert!(weights.starts_with(ahead), "{weights}");
}

/// `watch` runs beside the steps after it. The report of the last but one precedes its own.
#[test]
fn the_last_step_waits_for_those_that_run_beside_others() {
    let folder = Folder::new("beside");
    folder.add_program("cargo", "exit 1");
    let (status, output) = folder.run(&["--only", "watch", "--only", "report", "--only", "long:seeds"], &[]);
    assert_eq!(status, Some(1), "{output}");
    let place = |text: &str| output.find(text).unwrap_or_else(|| panic!("no {text}: {output}"));
    let (watch, report) = (place("[ 1/3] watch                    FAILED"), place("[ 2/3] report "));
    let begins = place("[ 1/3] watch                    begins");
    assert!(begins < report && report < watch && watch < place("[ 3/3] long:seeds "), "{output}");
    let totals = "\n0 passed, 3 failed, 0 skipped; failed: report; failed: watch; failed: long:seeds\n";
    assert!(output.ends_with(totals), "{output}");
}

#[test]
fn the_report_fails_unless_each_requirement_has_a_test_that_passed() {
    let folder = Folder::new("report");
    let junit = folder.0.join("junit.xml");
    let report = || {
        let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/report"))
            .env("POOLHOUSE_JUNIT", &junit)
            .env("POOLHOUSE_FIGURES", folder.0.join("figures"))
            .env("CARGO_TARGET_DIR", folder.0.join("target"))
            .output()
            .expect("tests/scripts/report");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (status, output) = report();
    assert_eq!(status, Some(2), "{output}");
    let unit = "topology::tests::members::only_an_older_topology_version_of_the_same_process_is_ignored";
    let file = "server-discovery-and-monitoring/tests/unified/loadbalanced-emit-topology-changed-before-close";
    // Official tests are cases of one case, and `unified.json` names them.
    let official = |end| format!("<system-out>test any::{file}::Topology lifecycle ... {end}</system-out>");
    for (program, name, end, id, is_covered) in [
        ("poolhouse-core", unit, String::new(), "SDAM-11", true),
        ("poolhouse-core", unit, "<failure/>".to_owned(), "SDAM-11", false),
        ("poolhouse-core", unit, "<system-out>test x ... ok</system-out>".to_owned(), "SDAM-11", true),
        ("poolhouse-hosted::unified", "all", official("ok"), "LOG-20", true),
        ("poolhouse-hosted::unified", "all", official("ignored"), "LOG-20", false),
        ("poolhouse-hosted::logging", "all", official("ok"), "LOG-20", false),
    ] {
        let case = format!("<testcase name=\"{name}\">{end}</testcase>");
        let results = format!("<testsuites><testsuite name=\"{program}\">{case}</testsuite></testsuites>");
        fs::write(&junit, results).expect("results");
        let (status, output) = report();
        assert_eq!(status, Some(1), "{output}");
        assert_eq!(output.contains(&format!("requirements: {id} its tests did not pass")), !is_covered, "{output}");
        assert!(output.contains("requirements: CMAP-01 its tests did not pass"), "{output}");
    }
}
