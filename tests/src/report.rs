//! The figures of a build: what the suites have left behind and printed, in one table and one JSON.
//!
//! A figure that nobody has left is told as not measured, with the command that would measure it: it is never zero by silence. What takes hours is not
//! measured in each build: its last figures are kept in `tests/figures`, and told as what they are.

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

/// A line of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its number.
    pub number: usize,
    /// What it is of.
    pub title: &'static str,
    /// The figures by name; those that were not measured are not there.
    pub figures: Vec<(String, Value)>,
    /// What was not measured, and the command that would.
    pub missing: Vec<(&'static str, &'static str)>,
}

/// All that a report is made of.
#[derive(Clone, Debug, Default)]
pub struct Material {
    /// What suites have left, by the name of the suite.
    pub figures: BTreeMap<String, Value>,
    /// What those runs have left that take too long for each build, by the same names: the last of each, kept with the sources.
    pub long: BTreeMap<String, Value>,
    /// What `cargo test` has printed; empty if there is nothing.
    pub log: String,
    /// The root of the repository.
    pub root: PathBuf,
}

/// Where `./tests/run` leaves its logs.
#[must_use]
pub fn run_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("run")
}

/// Where the figures of long runs are kept.
#[must_use]
pub fn long_folder(root: &Path) -> PathBuf {
    root.join("tests/figures")
}

/// The figures in a folder, by the name of the suite. What is no JSON is passed over.
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

/// The report.
#[must_use]
pub fn rows(material: &Material) -> Vec<Row> {
    rows::all(material, &read_log(&material.log))
}

/// The report as JSON: each figure below its row's number.
#[must_use]
pub fn to_json(rows: &[Row]) -> Value {
    let rows = rows.iter().map(|row| {
        let figures: serde_json::Map<String, Value> = row.figures.iter().cloned().collect();
        let missing: BTreeMap<_, _> = row.missing.iter().copied().collect();
        (row.number.to_string(), json!({ "title": row.title, "figures": figures, "not_measured": missing }))
    });
    Value::Object(rows.collect())
}

/// The report as text, a line for each figure; with an earlier one, what each was then where it has changed.
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

/// A figure in one line.
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
