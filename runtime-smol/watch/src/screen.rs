//! The screen of a terminal: a pure function of the state and the size.

use poolhouse_smol::poolhouse_wire::peer_text::is_unsafe;

use crate::state::{DemoState, Event, Health, Kind, Sample, Server, State};

/// The look of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Dim,
    Bold,
    Key,
    Good,
    Busy,
    Bad,
    Accent,
}

/// Pieces of text from left to right.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line(pub(crate) Vec<(Style, String)>);

impl Line {
    fn of(style: Style, text: impl Into<String>) -> Self {
        Self::default().and(style, text)
    }

    #[must_use]
    fn and(mut self, style: Style, text: impl Into<String>) -> Self {
        self.0.push((style, text.into()));
        self
    }

    /// Cuts the line at a number of columns. Characters that could move the cursor or turn the text
    /// become question marks.
    #[must_use]
    fn fit(self, columns: usize) -> Self {
        let mut left = columns;
        let mut fitted = Self::default();
        for (style, text) in self.0 {
            let visible = |character: char| if is_unsafe(character) { '?' } else { character };
            let text: String = text.chars().take(left).map(visible).collect();
            left -= text.chars().count();
            fitted.0.push((style, text));
        }
        fitted
    }
}

/// Columns of labels before the sparklines, and of values after them.
const LABEL: usize = 12;
const VALUE: usize = 14;
/// Columns of a server's address and detail, each with a space after it, and of a count, with a space before it.
const ADDRESS: usize = 22;
const DETAIL: usize = 9;
const COUNT: usize = 6;
/// The narrowest bar.
const BAR_MIN: usize = 6;

/// Returns at most `lines` lines of at most `columns` columns.
pub(crate) fn frame(state: &State, columns: usize, lines: usize) -> Vec<Line> {
    let mut out = vec![title(state)];
    out.extend(state.warnings.iter().map(|warning| Line::of(Style::Busy, warning)));
    out.push(Line::default());
    out.extend(charts(state, columns));
    out.push(Line::default());
    out.extend(servers(state, columns));
    out.push(Line::default());
    let keys = keys(state);
    // The last line shows the keys.
    out.truncate(lines.saturating_sub(1));
    let room = lines.saturating_sub(out.len() + 1);
    let skipped = state.events.len().saturating_sub(room);
    out.extend(state.events.iter().skip(skipped).map(event));
    out.resize(lines.saturating_sub(1), Line::default());
    out.push(keys);
    out.truncate(lines);
    out.into_iter().map(|line| line.fit(columns)).collect()
}

fn title(state: &State) -> Line {
    let seconds = state.time.as_secs();
    let about = if state.demo.is_some() { state.words.fakes } else { "given servers" };
    let line = Line::of(Style::Bold, "Poolhouse")
        .and(Style::Plain, format!("  {}:{:02}  {about}", seconds / 60, seconds % 60));
    match &state.page {
        Some(page) => line.and(Style::Accent, format!("  {page}")),
        None => line,
    }
}

fn charts(state: &State, columns: usize) -> Vec<Line> {
    let width = columns.saturating_sub(LABEL + VALUE).max(1);
    let last = state.sample();
    let chart = |label: &str, style, of: fn(&Sample) -> u64, value: String| {
        let skipped = state.samples.len().saturating_sub(width);
        let values: Vec<u64> = state.samples.iter().skip(skipped).map(of).collect();
        Line::of(Style::Dim, format!("{label:<LABEL$}"))
            .and(style, format!("{:>width$}", sparkline(&values)))
            .and(Style::Bold, format!(" {value:>0$}", VALUE - 1))
    };
    let totals = state.totals;
    let failed = if totals.failed > 0 { Style::Bad } else { Style::Dim };
    let mut lines = vec![
        chart("throughput", Style::Good, |sample| sample.rate, format!("{}/s", grouped(last.rate))),
        chart("latency p50", Style::Accent, |sample| sample.p50_us, format!("{} us", grouped(last.p50_us))),
        chart("latency p99", Style::Busy, |sample| sample.p99_us, format!("{} us", grouped(last.p99_us))),
        Line::of(Style::Dim, format!("{:<LABEL$}", "operations"))
            .and(
                Style::Plain,
                format!("{} succeeded, {} {}", grouped(totals.succeeded), grouped(totals.other), state.words.other),
            )
            .and(failed, format!(", {} failed", grouped(totals.failed))),
    ];
    lines.extend(state.resized.map(|resized| {
        Line::of(Style::Dim, format!("{:<LABEL$}", "connections")).and(Style::Plain, resized.to_string())
    }));
    lines
}

/// Returns one character for each value, as high as the value in relation to the highest.
fn sparkline(values: &[u64]) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = values.iter().copied().max().unwrap_or(0);
    let level = |value: u64| match u128::from(value) * 8 {
        0 => ' ',
        scaled => LEVELS[usize::try_from(scaled.div_ceil(highest.into()) - 1).unwrap_or(0).min(7)],
    };
    values.iter().copied().map(level).collect()
}

/// Returns a number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn servers(state: &State, columns: usize) -> Vec<Line> {
    let words = state.words;
    let (kind_title, kind_width) = words.kind;
    // Narrow screens have no details, then no bars.
    let fixed = ADDRESS + kind_width + words.counts.len() * COUNT - 1;
    let detail = words.detail.filter(|_| columns > fixed + DETAIL + BAR_MIN);
    let used = fixed + if detail.is_some() { DETAIL } else { 0 };
    let bar = columns.saturating_sub(used + 1);
    let bar = if bar >= BAR_MIN { bar } else { 0 };
    let text = |address: &str, kind: &str| format!("{address:<0$.0$} {kind:<1$.1$} ", ADDRESS - 1, kind_width - 1);
    let number = |index: usize, text: &str| format!("{text:>0$}", if index == 0 { COUNT - 1 } else { COUNT });
    let mut heading = text("server", kind_title);
    if let Some(detail) = detail {
        heading.push_str(&format!("{detail:>0$} ", DETAIL - 1));
    }
    if bar > 0 {
        heading.push_str(&format!("{:<bar$} ", words.bar));
    }
    heading.extend(words.counts.iter().enumerate().map(|(index, (title, _))| number(index, title)));
    let mut out = vec![Line::of(Style::Dim, heading)];
    for server in &state.servers {
        let frozen = state.demo.as_ref().is_some_and(|demo| demo.frozen.as_ref() == Some(&server.address));
        let kind = if frozen { "frozen" } else { &server.kind };
        let style = match server.health {
            Health::Out => Style::Bad,
            _ if frozen => Style::Bad,
            Health::Good => Style::Good,
            Health::Plain => Style::Plain,
        };
        let mut line = Line::of(style, text(&server.address, kind));
        if detail.is_some() {
            // In the columns of a screen, it needs no blank.
            let detail = server.detail.as_ref().map_or("-".to_owned(), |text| text.replace(' ', ""));
            line = line.and(Style::Plain, format!("{detail:>0$} ", DETAIL - 1));
        }
        if bar > 0 {
            line.0.extend(parts(server, bar).0);
            line = line.and(Style::Plain, " ");
        }
        for (index, count) in server.counts.iter().enumerate() {
            let style = if index == words.waiting && *count > 0 { Style::Busy } else { Style::Plain };
            line = line.and(style, number(index, &count.to_string()));
        }
        out.push(line);
    }
    out
}

/// Returns the bar of a server: its first three counts, and room for more.
fn parts(server: &Server, width: usize) -> Line {
    let counts: Vec<u64> = server.counts.iter().take(3).copied().map(u64::from).collect();
    let total: u64 = counts.iter().sum();
    let whole = total.max(server.bar_max.into()).max(1);
    let mut line = Line::default();
    let (mut sum, mut drawn) = (0, 0);
    let looks = [(Style::Good, '█'), (Style::Accent, '▒'), (Style::Busy, '░'), (Style::Dim, '·')];
    for ((style, character), count) in looks.into_iter().zip(counts.into_iter().chain([whole - total])) {
        sum += count;
        // Never more than `width`.
        let end = usize::try_from(sum * width as u64 / whole).unwrap_or(width);
        line = line.and(style, String::from_iter(core::iter::repeat_n(character, end - drawn)));
        drawn = end;
    }
    line
}

fn event(event: &Event) -> Line {
    let style = match event.kind {
        Kind::Done => Style::Accent,
        Kind::Primary => Style::Good,
        Kind::Failure => Style::Bad,
        Kind::Other => Style::Plain,
    };
    Line::of(Style::Dim, format!("{:8.3} ", event.at.as_secs_f64())).and(style, &event.text)
}

fn keys(state: &State) -> Line {
    let mut line = Line::default();
    if let Some(DemoState { commands: [fail, freeze], .. }) = &state.demo {
        line = line.and(Style::Key, " f ").and(Style::Plain, format!(" {fail}  "));
        line = line.and(Style::Key, " z ").and(Style::Plain, format!(" {freeze}  "));
    }
    line.and(Style::Key, " q ").and(Style::Plain, " quit")
}

#[cfg(test)]
mod tests;
