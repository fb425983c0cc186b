//! The figures of a build: the recorded and printed results of the suites, in one table and one
//! JSON document.
//!
//! A figure that no suite recorded is reported as not measured, with the command that measures it;
//! it is never reported as zero. Figures that take hours are not measured in each build. Their last
//! values are kept in `tests/figures`, and are reported as earlier values.

use alloc::collections::BTreeMap;
use core::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::requirements::read_log;

mod rows;
mod sources;

#[cfg(test)]
mod tests;

/// A row of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The number of the row.
    pub number: usize,
    /// The subject of the row.
    pub title: &'static str,
    /// The measured figures by name.
    pub figures: Vec<(String, Value)>,
    /// The figures that were not measured, each with the command that measures it.
    pub missing: Vec<(&'static str, &'static str)>,
}

/// The input of a report.
#[derive(Clone, Debug, Default)]
pub struct Material {
    /// The recorded figures of this run, by the name of the suite.
    pub figures: BTreeMap<String, Value>,
    /// The last figures of runs that take too long for each build, by the name of the suite. They
    /// are kept with the sources.
    pub long: BTreeMap<String, Value>,
    /// The output of `cargo test`; empty if there is none.
    pub log: String,
    /// The root of the repository.
    pub root: PathBuf,
}

/// The folder of the logs of `./tests/run`.
#[must_use]
pub fn run_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("run")
}

/// The folder of the figures of long runs.
#[must_use]
pub fn long_folder(root: &Path) -> PathBuf {
    root.join("tests/figures")
}

/// Reads the figures of a folder, by the name of the suite. Files that are not JSON are skipped.
#[must_use]
pub fn read_figures(folder: &Path) -> BTreeMap<String, Value> {
    let mut figures = BTreeMap::new();
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap_or_default();
        if let Some(value) =
            serde_json::from_str(&text).ok().filter(|_| path.extension().is_some_and(|end| end == "json"))
        {
            figures.insert(name, value);
        }
    }
    figures
}

/// Creates the rows of the report.
#[must_use]
pub fn rows(material: &Material) -> Vec<Row> {
    rows::all(material, &read_log(&material.log))
}

/// Formats the report as JSON: an object for each row number, with its figures.
#[must_use]
pub fn to_json(rows: &[Row]) -> Value {
    let rows = rows.iter().map(|row| {
        let figures: serde_json::Map<String, Value> = row.figures.iter().cloned().collect();
        let missing: BTreeMap<_, _> = row.missing.iter().copied().collect();
        (row.number.to_string(), json!({ "title": row.title, "figures": figures, "not_measured": missing }))
    });
    Value::Object(rows.collect())
}

/// Formats the report as text, one line for each figure. A figure that differs from the earlier
/// report is followed by its earlier value.
#[must_use]
pub fn to_text(rows: &[Row], earlier: Option<&Value>) -> String {
    let mut text = String::new();
    for row in rows {
        let _ = writeln!(text, "{:2} {}", row.number, row.title);
        for (name, value) in &row.figures {
            let before = earlier.and_then(|report| report.get(row.number.to_string())?.get("figures")?.get(name));
            let change = before.filter(|before| *before != value).map(|before| format!("   (was {})", shown(before)));
            let _ = writeln!(text, "     {name}: {}{}", shown(value), change.unwrap_or_default());
        }
        for (what, command) in &row.missing {
            let _ = writeln!(text, "     {what}: not measured ({command})");
        }
    }
    text
}

/// Formats a figure on one line.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(" "),
        Value::Object(entries) => {
            entries.iter().map(|(name, value)| format!("{name} {}", shown(value))).collect::<Vec<_>>().join(", ")
        }
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(fraction) => format!("{}", (fraction * 100.0).round() / 100.0),
            None => number.to_string(),
        },
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}
