//! Plots as SVG.

use crate::report::{Plot, Series};
use core::error::Error;
use plotters::prelude::*;
use std::path::Path;

const COLOURS: [RGBColor; 4] =
    [RGBColor(0x1f, 0x77, 0xb4), RGBColor(0xd6, 0x27, 0x28), RGBColor(0x2c, 0xa0, 0x2c), RGBColor(0x94, 0x67, 0xbd)];

/// Writes a plot into a folder.
pub(crate) fn draw(plot: &Plot, folder: &Path) -> Result<(), Box<dyn Error>> {
    let path = folder.join(plot.file());
    match plot {
        Plot::Bars { title, unit, bars, .. } => draw_bars(&path, title, unit, bars),
        Plot::Lines { title, x, y, series, .. } => draw_lines(&path, title, (x, y), series),
    }
}

/// One line for each, the longest as long as the picture is wide.
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
        .y_label_area_size(250)
        .build_cartesian_2d(0.0..most * 1.12, 0.0..rows)?;
    chart.configure_mesh().disable_y_mesh().disable_y_axis().x_desc(unit).x_labels(8).draw()?;
    for (place, (name, figure)) in bars.iter().enumerate() {
        let middle = rows - place as f64 - 0.5;
        let ours = ["poolhouse", "core", "Session"].iter().any(|word| name.contains(word));
        let colour = COLOURS[usize::from(!ours)];
        let bar = [(0.0, middle - 0.35), (*figure, middle + 0.35)];
        chart.draw_series([Rectangle::new(bar, colour.filled())])?;
        let (x, y) = chart.backend_coord(&(0.0, middle));
        let (end, _) = chart.backend_coord(&(*figure, middle));
        let font = ("sans-serif", 13).into_font();
        let left = name.chars().count().min(42);
        root.draw(&Text::new(name.clone(), (x - 8 - i32::try_from(left * 6)?, y - 6), font.clone()))?;
        root.draw(&Text::new(figure_of(*figure), (end + 4, y - 6), font))?;
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
    chart.configure_mesh().x_desc(x).y_desc(y).y_label_formatter(&|figure| figure_of(*figure)).draw()?;
    for (series, colour) in series.iter().zip(COLOURS) {
        chart
            .draw_series(LineSeries::new(series.points.iter().copied(), colour.stroke_width(2)))?
            .label(&series.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.9)).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}

fn figure_of(figure: f64) -> String {
    if figure.abs() >= 100.0 { format!("{figure:.0}") } else { format!("{figure:.1}") }
}
