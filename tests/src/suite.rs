//! Test targets whose cases are found at run time, and which are skipped by name if their
//! prerequisites are missing.
//!
//! A target with `harness = false` builds a [`Suite`] in its `main`. It understands libtest's
//! command line (`--list`, filters, `--test-threads`) and prints libtest's closing line.

use core::fmt;
use std::env;
use std::process::{Command, ExitCode};
use std::sync::{PoisonError, RwLock};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

#[cfg(test)]
mod tests;

/// The variable that nextest sets for the programs that it lists and runs.
const NEXTEST: &str = "NEXTEST";

/// Locked for writing by a case that runs alone, for reading by each other case.
static RUNNING: RwLock<()> = RwLock::new(());

/// The result of a case: `()` (a failing case panics) or a `Result`, of which an error is printed.
pub trait Verdict {
    /// Returns the case's result with its error as text.
    ///
    /// # Errors
    /// The text of the error that the case returned.
    fn into_result(self) -> Result<(), String>;
}

impl Verdict for () {
    fn into_result(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: fmt::Display> Verdict for Result<(), E> {
    fn into_result(self) -> Result<(), String> {
        self.map_err(|error| error.to_string())
    }
}

/// The body of one case.
type Body = Box<dyn FnOnce() -> Result<(), String> + Send>;

/// A part of a suite with cases that do not run.
#[derive(Debug)]
struct Part {
    name: String,
    reason: String,
    /// The part is expected to run, so it fails with `CI=true`.
    is_wanted: bool,
}

/// A named list of cases.
///
/// ```no_run
/// use poolhouse_tests::{mongod, suite::Suite};
///
/// fn ping_is_answered() -> Result<(), String> {
///     Ok(())
/// }
///
/// fn main() -> std::process::ExitCode {
///     Suite::new("mongod")
///         .skip_if(mongod::available().err())
///         .case("ping_is_answered", ping_is_answered)
///         .run()
/// }
/// ```
#[must_use]
pub struct Suite {
    name: String,
    skip: Option<String>,
    parts: Vec<Part>,
    cases: Vec<(String, Body)>,
    /// The cases that run alone.
    alone: Vec<&'static str>,
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.cases.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Suite")
            .field("name", &self.name)
            .field("skip", &self.skip)
            .field("parts", &self.parts)
            .field("cases", &names)
            .finish()
    }
}

impl Suite {
    /// Creates an empty suite. Skips are reported under `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), skip: None, parts: Vec::new(), cases: Vec::new(), alone: Vec::new() }
    }

    /// Skips the whole suite for this reason, if it is `Some`; the first reason is kept.
    pub fn skip_if(mut self, reason: Option<impl fmt::Display>) -> Self {
        if self.skip.is_none() {
            self.skip = reason.map(|reason| reason.to_string());
        }
        self
    }

    /// Skips a part of the suite because its cases are missing, for example one of several folders.
    ///
    /// The part is an ignored case of this name; with `CI=true` it is a failed case.
    pub fn missing(self, part: impl Into<String>, reason: impl fmt::Display) -> Self {
        self.part(part, reason, true)
    }

    /// Skips a part of the suite that cannot run here, also with `CI=true`. The part is an ignored
    /// case of this name.
    pub fn left_out(self, part: impl Into<String>, reason: impl fmt::Display) -> Self {
        self.part(part, reason, false)
    }

    fn part(mut self, name: impl Into<String>, reason: impl fmt::Display, is_wanted: bool) -> Self {
        self.parts.push(Part { name: name.into(), reason: reason.to_string(), is_wanted });
        self
    }

    /// Adds a case.
    pub fn case<V: Verdict>(mut self, name: impl Into<String>, body: impl FnOnce() -> V + Send + 'static) -> Self {
        self.cases.push((name.into(), Box::new(move || body().into_result())));
        self
    }

    /// Runs the case with this name while no other case of the program runs: it measures time.
    ///
    /// # Panics
    ///
    /// If no case and no skipped part has this name.
    pub fn alone(mut self, name: &'static str) -> Self {
        let mut names = self.cases.iter().map(|(name, _)| name).chain(self.parts.iter().map(|part| &part.name));
        assert!(names.any(|known| known == name), "no case is named {name}");
        self.alone.push(name);
        self
    }

    /// Runs the cases selected by the command line and returns the exit code of the target.
    ///
    /// A skipped suite prints `skipped: <name> suite: <reason>` and reports its cases as ignored;
    /// with `CI=true` they fail instead. A skipped part prints `skipped: <name>/<part>: <reason>`
    /// and is a separate ignored case; with `CI=true` a missing part fails. A suite without any
    /// case fails, because it would prove nothing.
    pub fn run(self) -> ExitCode {
        let arguments = Arguments::from_args();
        let ci = env::var("CI").is_ok_and(|value| value == "true");
        if !arguments.list {
            for notice in self.notices() {
                eprintln!("{notice}");
            }
        }
        libtest_mimic::run(&arguments, self.into_trials(ci)).exit_code()
    }

    /// Returns the lines that report skips.
    fn notices(&self) -> Vec<String> {
        let name = &self.name;
        match &self.skip {
            Some(reason) => vec![format!("skipped: {name} suite: {reason}")],
            None => self.parts.iter().map(|part| format!("skipped: {name}/{}: {}", part.name, part.reason)).collect(),
        }
    }

    /// Returns one trial per case and per skipped part; one trial for the suite itself if its cases
    /// could not be found.
    fn into_trials(self, ci: bool) -> Vec<Trial> {
        let Self { name, skip, parts, mut cases, alone } = self;
        if cases.is_empty() && parts.is_empty() {
            let body: Body = Box::new(|| Err("the suite contains no case".to_owned()));
            cases.push((format!("{name}_suite"), body));
        }
        let cases = cases.into_iter().map(|(name, body)| {
            let (skip, is_alone) = (skip.clone(), alone.contains(&name.as_str()));
            Trial::ignorable_test(name, move || {
                let _alone = is_alone.then(|| RUNNING.write().unwrap_or_else(PoisonError::into_inner));
                let _beside = (!is_alone).then(|| RUNNING.read().unwrap_or_else(PoisonError::into_inner));
                verdict(skip, ci, body)
            })
        });
        let parts = parts.into_iter().map(|part| {
            let nothing: Body = Box::new(|| Ok(()));
            Trial::ignorable_test(part.name, move || verdict(Some(part.reason), ci && part.is_wanted, nothing))
        });
        cases.chain(parts).collect()
    }
}

/// Runs a target whose cases share a build, processes or figures.
///
/// nextest runs each case in a separate process. Such a target has one case there, `all`, which
/// runs this program without nextest's variable. Its output lists the cases.
pub fn as_one(target: impl FnOnce() -> ExitCode) -> ExitCode {
    if env::var_os(NEXTEST).is_none() {
        return target();
    }
    let all = || {
        let status = env::current_exe().and_then(|program| Command::new(program).env_remove(NEXTEST).status());
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failed::from(format!("the program ended with {status}"))),
            Err(error) => Err(Failed::from(error)),
        }
    };
    libtest_mimic::run(&Arguments::from_args(), vec![Trial::test("all", all)]).exit_code()
}

/// Runs a case, or reports why it is not run.
fn verdict(skip: Option<String>, ci: bool, body: Body) -> Result<Completion, Failed> {
    match skip {
        None => body().map(|()| Completion::Completed).map_err(Failed::from),
        Some(reason) if ci => Err(Failed::from(format!("not run, which is a failure with CI=true: {reason}"))),
        Some(reason) => Ok(Completion::ignored_with(reason)),
    }
}
