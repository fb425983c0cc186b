//! The plan of `tests/run`, and what it may install.
#![forbid(unsafe_code)]
#![cfg(unix)]

extern crate alloc;

use alloc::collections::BTreeSet;
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

    /// Runs `tests/run` and returns its output.
    fn run(&self, arguments: &[&str]) -> String {
        let path = env::var("PATH").unwrap_or_default();
        let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("run"))
            .args(arguments)
            .env("PATH", format!("{}:{path}", self.0.join("bin").display()))
            .env("CARGO_TARGET_DIR", self.0.join("target"))
            .env("POOLHOUSE_FIGURES", self.0.join("figures"))
            .env_remove("CI")
            .env_remove("POOLHOUSE_PROVISION")
            .output()
            .expect("tests/run");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.is_empty(), "{errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
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
    let list = folder.run(&["--list"]);
    let families: BTreeSet<&str> = list.lines().filter_map(|step| step.split(':').next()).collect();
    assert!(families.contains("tests"), "{list}");
    let plan = folder.run(&["--plan"]);
    // Lines of a family: its name, and the number of its steps.
    let planned: BTreeSet<&str> = plan
        .lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("  ")?.split_whitespace();
            let (name, count) = (words.next()?, words.next()?);
            (count.parse::<u32>().is_ok() && words.next()?.starts_with("step")).then_some(name)
        })
        .collect();
    assert_eq!(planned, families, "{plan}");
    assert!(plan.contains(&format!("{} in all", list.lines().count())), "{plan}");
    let installed = fs::read_dir(folder.0.join("target")).expect("a target folder");
    let installed: Vec<_> = installed.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    assert_eq!(installed, ["run"]);
}

#[test]
fn the_system_is_changed_only_with_provision() {
    let folder = Folder::new("provision");
    let called = folder.0.join("rustup-was-called");
    // A toolchain without rustfmt, and a rustup that only records its calls.
    let path = env::var("PATH").unwrap_or_default();
    folder.add_program("cargo", &format!("[[ $1 == fmt ]] && exit 1\nPATH='{path}' exec cargo \"$@\""));
    folder.add_program("rustup", &format!("echo \"$@\" >>'{}'", called.display()));

    let output = folder.run(&["--only", "fmt:fuzz"]);
    assert!(output.contains("not without --provision"), "{output}");
    assert!(
        output.contains("skipped: fmt:fuzz: the component rustfmt is not installed (./tests/run --provision"),
        "{output}"
    );
    assert!(!called.exists(), "{output}");

    let output = folder.run(&["--only", "fmt:fuzz", "--provision"]);
    assert!(output.contains("by rustup, in the system"), "{output}");
    assert_eq!(fs::read_to_string(&called).expect("rustup was called"), "component add rustfmt\n");
}
