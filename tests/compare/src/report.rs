//! The results: tables and notes, as text; between processes as JSON.

use core::fmt::{self, Write};
use serde::{Deserialize, Serialize};

/// All sections of a run.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// The machine of the run.
    pub(crate) machine: String,
    /// The commit of the sources.
    pub(crate) commit: String,
    pub(crate) command: String,
    /// Whether this was a quick run, with figures that are not measurements.
    pub(crate) quick: bool,
    /// The number of runs that have ended.
    pub(crate) runs: usize,
    pub(crate) sections: Vec<Section>,
}

/// The results of one section.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) tables: Vec<Table>,
    pub(crate) notes: Vec<String>,
}

impl Section {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Appends the results of a worker process.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.tables.append(&mut other.tables);
        for note in other.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

/// Rows of figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

impl Table {
    pub(crate) fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        Self { title: title.into(), columns, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, name: impl Into<String>, figures: &[f64]) {
        assert_eq!(figures.len(), self.columns.len(), "a figure for each column");
        let figures = figures.iter().map(|figure| figure.is_finite().then_some(*figure)).collect();
        self.rows.push(Row { name: name.into(), figures, runs: Vec::new(), skipped: None });
    }

    /// Adds a row that could not be measured, with the reason.
    pub(crate) fn skip(&mut self, name: impl Into<String>, why: impl Into<String>) {
        self.rows.push(Row { name: name.into(), figures: Vec::new(), runs: Vec::new(), skipped: Some(why.into()) });
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// `None` where no figure applies.
    pub(crate) figures: Vec<Option<f64>>,
    /// The figures of each run, if these are medians of several ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) runs: Vec<Vec<Option<f64>>>,
    pub(crate) skipped: Option<String>,
}

impl Row {
    /// The spread of the figures of several runs: half of the difference between the largest and the smallest in
    /// percent of the row's figure, or the largest if that is 0. Empty if all are equal.
    fn spread(&self, column: usize) -> String {
        let each = || self.runs.iter().filter_map(|run| run.get(column).copied().flatten());
        let figure = self.figures.get(column).copied().flatten();
        match (figure, each().reduce(f64::min), each().reduce(f64::max)) {
            (Some(figure), Some(least), Some(most)) if most > least && figure == 0.0 => format!("..{}", shown(most)),
            (Some(figure), Some(least), Some(most)) if most > least => {
                format!(" ±{:.0}%", (most - least) / 2.0 / figure.abs() * 100.0)
            }
            _ => String::new(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\nat commit {}\n{}", self.command, self.commit, self.machine)?;
        if self.quick {
            writeln!(f, "A quick run: it only checks that everything works; its figures are not measurements.")?;
        }
        if self.runs > 1 {
            writeln!(
                f,
                "Medians of {} runs, but of counts of defects the largest; ± half of the range of the runs.",
                self.runs
            )?;
        }
        self.sections.iter().try_for_each(|section| write!(f, "\n{section}"))
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "== {}", self.name)?;
        self.tables.iter().try_for_each(|table| write!(f, "\n{table}"))?;
        if !self.notes.is_empty() {
            writeln!(f)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "- {note}"))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name_width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0) + 2;
        writeln!(f, "{}", self.title)?;
        write!(f, "{:<name_width$}", "")?;
        // With several runs, ` ±12%` follows a figure.
        let least_width = if self.rows.iter().any(|row| !row.runs.is_empty()) { 14 } else { 9 };
        let width = |column: &str| column.chars().count().max(least_width) + 2;
        for column in &self.columns {
            write!(f, "{column:>width$}", width = width(column))?;
        }
        writeln!(f)?;
        for row in &self.rows {
            write!(f, "{:<name_width$}", row.name)?;
            if let Some(why) = &row.skipped {
                write!(f, "  skipped: {why}")?;
            }
            for (place, (figure, column)) in row.figures.iter().zip(&self.columns).enumerate() {
                let text = figure.map_or_else(|| "-".to_owned(), shown) + &row.spread(place);
                write!(f, "{text:>width$}", width = width(column))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// At least three digits, with separators between thousands.
fn shown(figure: f64) -> String {
    let size = figure.abs();
    if size >= 99.95 {
        return grouped(figure);
    }
    let decimals = if size >= 9.995 { 1 } else { 2 };
    format!("{figure:.decimals$}")
}

fn grouped(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        let left = digits.len() - place;
        if place > 0 && left.is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        // Writing to a string never fails.
        let _ = text.write_char(digit);
    }
    text
}
