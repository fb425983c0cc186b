//! Figures of a run, for the report: each suite leaves a file of its own in the folder that `POOLHOUSE_FIGURES` names.

use serde_json::Value;
use std::path::PathBuf;

/// The variable that names the folder. What runs a suite for another purpose than its figures takes it away.
pub const FOLDER: &str = "POOLHOUSE_FIGURES";

/// Where figures go; `None` when nobody asked for them.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Leaves the figures of a suite behind, in place of those of its last run.
///
/// - `suite`: the name of the file, without its end: words joined by underscores. - `figures`: an object.
///
/// # Panics
///
/// Panics when the folder cannot be written to.
pub fn record(suite: &str, figures: &Value) {
    let Some(folder) = folder() else { return };
    std::fs::create_dir_all(&folder).expect("the folder of figures can be made");
    let text = serde_json::to_string_pretty(figures).expect("figures are JSON");
    std::fs::write(folder.join(format!("{suite}.json")), text + "\n").expect("figures can be written");
}
