//! Several runs as one: the median of each figure.

use crate::measure::median;
use crate::report::{Plot, Row, Section, Table};

/// Merges the sections of some runs, which are the same ones in the same order.
///
/// A row has the figures of the runs in which it was measured. Curves are those of the first run. Notes that not all
/// runs have name their run.
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

fn section(runs: &[&Section]) -> Section {
    let mut merged = Section::new(&runs[0].name);
    for table in &runs[0].tables {
        let same = each(runs, |run| run.tables.iter().find(|other| other.title == table.title));
        let mut all = Table { rows: Vec::new(), ..table.clone() };
        for one in &table.rows {
            all.rows.push(row(&each(&same, |table| table.rows.iter().find(|other| other.name == one.name))));
        }
        merged.tables.push(all);
    }
    for plot in &runs[0].plots {
        merged.plots.push(plot_of(plot, &each(runs, |run| run.plots.iter().find(|other| other.file() == plot.file()))));
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

fn row(runs: &[&Row]) -> Row {
    let measured: Vec<&Row> = runs.iter().filter(|row| row.skipped.is_none()).copied().collect();
    let Some(first) = measured.first() else { return runs[0].clone() };
    let of_column = |column: usize| {
        let figures: Vec<f64> = measured.iter().filter_map(|row| row.figures.get(column).copied().flatten()).collect();
        (!figures.is_empty()).then(|| median(figures))
    };
    Row {
        name: first.name.clone(),
        figures: (0..first.figures.len()).map(of_column).collect(),
        runs: measured.iter().map(|row| row.figures.clone()).collect(),
        skipped: None,
    }
}

fn plot_of(plot: &Plot, runs: &[&Plot]) -> Plot {
    let Plot::Bars { file, title, unit, bars } = plot else { return plot.clone() };
    let of_name = |name: &String| {
        let figures = runs.iter().filter_map(|run| match run {
            Plot::Bars { bars, .. } => bars.iter().find(|(other, _)| other == name).map(|(_, figure)| *figure),
            Plot::Lines { .. } => None,
        });
        (name.clone(), median(figures.collect()))
    };
    let bars = bars.iter().map(|(name, _)| of_name(name)).collect();
    Plot::Bars { file: file.clone(), title: title.clone(), unit: unit.clone(), bars }
}
