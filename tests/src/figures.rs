//! Figures of a run, for the report: each suite writes a separate file into the folder that
//! `POOLHOUSE_FIGURES` names.

use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// The variable that names the folder. A program that runs a suite for another purpose than its
/// figures removes it.
pub const FOLDER: &str = "POOLHOUSE_FIGURES";

/// Returns the folder for figures; `None` if none was requested.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Returns the commit of the sources, with `-dirty` if they differ from it; `unknown` without git.
#[must_use]
pub fn commit() -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/commit");
    let output = Command::new(script).output().ok().filter(|output| output.status.success());
    output.map_or_else(|| "unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the name of this program and its arguments.
fn command() -> String {
    let mut words = std::env::args();
    let program = words.next().map(PathBuf::from).unwrap_or_default();
    let name = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    core::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
}

/// Writes the figures of a suite, replacing those of its last run, together with their commit and
/// the command that measured them.
///
/// - `suite`: the name of the file, without its extension: words joined by underscores.
/// - `figures`: an object.
pub fn record(suite: &str, figures: &Value) {
    let Some(folder) = folder() else { return };
    std::fs::create_dir_all(&folder).expect("the folder of figures can be made");
    let mut figures = figures.clone();
    if let Some(figures) = figures.as_object_mut() {
        figures.insert("commit".to_owned(), commit().into());
        figures.insert("command".to_owned(), command().into());
    }
    let text = serde_json::to_string_pretty(&figures).expect("figures are JSON");
    std::fs::write(folder.join(format!("{suite}.json")), text + "\n").expect("figures can be written");
}
