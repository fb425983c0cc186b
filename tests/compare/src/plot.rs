//! Plots as SVG.

use crate::report::{Plot, Series};
use core::error::Error;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

const COLOURS: [RGBColor; 4] =
    [RGBColor(0x1f, 0x77, 0xb4), RGBColor(0xd6, 0x27, 0x28), RGBColor(0x2c, 0xa0, 0x2c), RGBColor(0x94, 0x67, 0xbd)];

const FLOOR: RGBColor = RGBColor(0xa0, 0xa0, 0xa0);
const WORDS: (&str, i32) = ("sans-serif", 13);

/// Writes a plot to a folder.
pub(crate) fn draw(plot: &Plot, folder: &Path) -> Result<(), Box<dyn Error>> {
    let path = folder.join(plot.file());
    match plot {
        Plot::Bars { title, unit, bars, .. } => draw_bars(&path, title, unit, bars),
        Plot::Lines { title, x, y, series, .. } => draw_lines(&path, title, (x, y), series),
    }
}

/// Draws one bar for each figure; the longest has the width of the picture.
fn draw_bars(path: &Path, title: &str, unit: &str, bars: &[(String, f64)]) -> Result<(), Box<dyn Error>> {
    let count = u32::try_from(bars.len())?;
    let root = SVGBackend::new(path, (860, 110 + 34 * count)).into_drawing_area();
    root.fill(&WHITE)?;
    let most = bars.iter().map(|(_, figure)| *figure).fold(f64::MIN_POSITIVE, f64::max);
    let rows = f64::from(count);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(300)
        .build_cartesian_2d(0.0..most * 1.12, 0.0..rows)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_desc(unit)
        .x_labels(6)
        .max_light_lines(1)
        .x_label_formatter(&|figure| figure_of(*figure))
        .draw()?;
    for (place, (name, figure)) in bars.iter().enumerate() {
        let middle = rows - place as f64 - 0.5;
        let bar = [(0.0, middle - 0.35), (*figure, middle + 0.35)];
        chart.draw_series([Rectangle::new(bar, colour_of(name).filled())])?;
        let (x, y) = chart.backend_coord(&(0.0, middle));
        let (end, _) = chart.backend_coord(&(*figure, middle));
        let words = |side| WORDS.into_text_style(&root).pos(Pos::new(side, VPos::Center));
        root.draw(&Text::new(name.clone(), (x - 8, y), words(HPos::Right)))?;
        root.draw(&Text::new(figure_of(*figure), (end + 6, y), words(HPos::Left)))?;
    }
    root.present()?;
    Ok(())
}

fn draw_lines(path: &Path, title: &str, (x, y): (&str, &str), series: &[Series]) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, (860, 440)).into_drawing_area();
    root.fill(&WHITE)?;
    let points = || series.iter().flat_map(|series| &series.points);
    let least = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let last = points().map(|point| point.0).fold(f64::NEG_INFINITY, f64::max);
    let most = points().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(80)
        .build_cartesian_2d(least..last, 0.0..most * 1.05)?;
    let words = |figure: &f64| figure_of(*figure);
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(x).y_desc(y).max_light_lines(1).x_label_formatter(&words).y_label_formatter(&words).draw()?;
    for (series, colour) in series.iter().zip(COLOURS) {
        chart
            .draw_series(LineSeries::new(series.points.iter().copied(), colour.stroke_width(2)))?
            .label(&series.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperRight).background_style(WHITE.mix(0.9)).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}

/// The colour of our own cases, of the baseline, or of others.
fn colour_of(name: &str) -> RGBColor {
    if name.starts_with("floor") {
        FLOOR
    } else if name.starts_with("poolhouse") {
        COLOURS[0]
    } else {
        COLOURS[1]
    }
}

fn figure_of(figure: f64) -> String {
    if figure.abs() >= 100.0 || figure.fract() == 0.0 { format!("{figure:.0}") } else { format!("{figure:.1}") }
}
