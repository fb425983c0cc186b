//! Several runs as one: the median of each figure.

use crate::measure::median;
use crate::report::{Row, Section, Table};

/// Counts of defects: the largest figure of the runs is shown instead of the median, which would hide one.
const DEFECTS: [&str; 4] = ["not ended", "lost", "doubled", "not read"];

/// Merges the sections of some runs, which are the same ones in the same order.
///
/// A row has the figures of the runs in which it was measured, and a note names those in which it was not. Notes
/// that not all runs have name their run.
pub(crate) fn merged(runs: &[Vec<Section>]) -> Vec<Section> {
    match runs {
        [] => Vec::new(),
        [only] => only.clone(),
        [first, ..] => (0..first.len()).map(|place| section(&each(runs, |run| run.get(place)))).collect(),
    }
}

/// A part of each run that has it.
fn each<'r, R, T>(runs: &'r [R], part: impl Fn(&'r R) -> Option<&'r T>) -> Vec<&'r T> {
    runs.iter().filter_map(part).collect()
}

/// The parts of all runs without those of the same name, in the order of their first run.
fn union<'r, T>(all: impl Iterator<Item = &'r T>, name: impl Fn(&T) -> &str) -> Vec<&'r T> {
    let mut union: Vec<&T> = Vec::new();
    for one in all {
        if union.iter().all(|other| name(other) != name(one)) {
            union.push(one);
        }
    }
    union
}

fn section(runs: &[&Section]) -> Section {
    let mut merged = Section::new(&runs[0].name);
    for table in union(runs.iter().flat_map(|run| &run.tables), |table| &table.title) {
        let same: Vec<_> = runs.iter().map(|run| run.tables.iter().find(|other| other.title == table.title)).collect();
        let mut all = Table { rows: Vec::new(), ..table.clone() };
        for one in union(same.iter().flatten().flat_map(|table| &table.rows), |row| &row.name) {
            let rows: Vec<_> = same
                .iter()
                .map(|table| table.and_then(|table| table.rows.iter().find(|other| other.name == one.name)))
                .collect();
            for (place, row) in rows.iter().enumerate() {
                let why = row.map_or(Some("is missing"), |row| row.skipped.as_deref());
                if let Some(why) = why {
                    merged.note(format!("Run {}: {}, {}: {why}", place + 1, table.title, one.name));
                }
            }
            all.rows.push(merged_row(&table.columns, &rows.into_iter().flatten().collect::<Vec<_>>()));
        }
        merged.tables.push(all);
    }
    for (place, run) in runs.iter().enumerate() {
        for note in &run.notes {
            let is_in_all = runs.iter().all(|run| run.notes.contains(note));
            if !is_in_all {
                merged.notes.push(format!("Run {}: {note}", place + 1));
            } else if place == 0 {
                merged.notes.push(note.clone());
            }
        }
    }
    merged
}

fn merged_row(columns: &[String], runs: &[&Row]) -> Row {
    let measured: Vec<&Row> = runs.iter().filter(|row| row.skipped.is_none()).copied().collect();
    let Some(first) = measured.first() else { return runs[0].clone() };
    let of_column = |(column, title): (usize, &String)| {
        let figures: Vec<f64> = measured.iter().filter_map(|row| row.figures.get(column).copied().flatten()).collect();
        let most = figures.iter().copied().reduce(f64::max)?;
        Some(if DEFECTS.contains(&title.as_str()) { most } else { median(figures) })
    };
    Row {
        name: first.name.clone(),
        figures: columns.iter().enumerate().map(of_column).collect(),
        runs: measured.iter().map(|row| row.figures.clone()).collect(),
        skipped: None,
    }
}
