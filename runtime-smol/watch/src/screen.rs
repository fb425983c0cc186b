//! The screen of a terminal: a pure function of the state and the size.

use core::time::Duration;

use poolhouse_smol::ServerType;

use crate::state::{Event, Kind, Sample, Server, State};

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

    /// Cuts the line at a number of columns. Control characters, which could move the cursor,
    /// become question marks.
    #[must_use]
    fn fit(self, columns: usize) -> Self {
        let mut left = columns;
        let mut fitted = Self::default();
        for (style, text) in self.0 {
            let visible = |character: char| if character.is_control() { '?' } else { character };
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
/// Columns of a server's address, type, round-trip time, each with a space after it, and of counts.
const ADDRESS: usize = 22;
const TYPE: usize = 13;
const ROUND_TRIP: usize = 9;
const COUNTS: usize = 23;
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
    let about = if state.demo.is_some() { "fake replica set in this process" } else { "given servers" };
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
    vec![
        chart("throughput", Style::Good, |sample| sample.rate, format!("{}/s", grouped(last.rate))),
        chart("latency p50", Style::Accent, |sample| sample.p50_us, format!("{} us", grouped(last.p50_us))),
        chart("latency p99", Style::Busy, |sample| sample.p99_us, format!("{} us", grouped(last.p99_us))),
        Line::of(Style::Dim, format!("{:<LABEL$}", "operations"))
            .and(Style::Plain, format!("{} succeeded, {} retried", grouped(totals.succeeded), grouped(totals.retried)))
            .and(failed, format!(", {} failed", grouped(totals.failed))),
    ]
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
    // Narrow screens have no round-trip times, then no bars.
    let fixed = ADDRESS + TYPE + COUNTS;
    let round_trips = columns > fixed + ROUND_TRIP + BAR_MIN;
    let used = fixed + if round_trips { ROUND_TRIP } else { 0 };
    let bar = columns.saturating_sub(used + 1);
    let bar = if bar >= BAR_MIN { bar } else { 0 };
    let text = |address: &str, kind: &str| format!("{address:<0$.1$} {kind:<2$}", ADDRESS - 1, ADDRESS - 1, TYPE);
    let mut heading = text("server", "type");
    if round_trips {
        heading.push_str(&format!("{:>1$} ", "RTT", ROUND_TRIP - 1));
    }
    if bar > 0 {
        heading.push_str(&format!("{:<bar$} ", "pool"));
    }
    heading.push_str("  use  idle   new  wait");
    let mut out = vec![Line::of(Style::Dim, heading)];
    for server in &state.servers {
        let frozen = state.demo.as_ref().is_some_and(|demo| demo.frozen.as_ref() == Some(&server.address));
        let kind = if frozen { "frozen" } else { server.server_type.name() };
        let style = if frozen || server.server_type == ServerType::Unknown {
            Style::Bad
        } else if matches!(server.server_type, ServerType::RsPrimary | ServerType::Standalone | ServerType::Mongos) {
            Style::Good
        } else {
            Style::Plain
        };
        let mut line = Line::of(style, text(&server.address, kind));
        if round_trips {
            line = line.and(Style::Plain, format!("{:>1$} ", milliseconds(server.round_trip), ROUND_TRIP - 1));
        }
        if bar > 0 {
            line.0.extend(pool(server, bar).0);
            line = line.and(Style::Plain, " ");
        }
        let counts = server.counts;
        let waiting = if counts.waiting > 0 { Style::Busy } else { Style::Plain };
        let held = format!("{:>5} {:>5} {:>5}", counts.in_use, counts.available, counts.pending);
        out.push(line.and(Style::Plain, held).and(waiting, format!(" {:>5}", counts.waiting)));
    }
    out
}

fn milliseconds(time: Option<Duration>) -> String {
    time.map_or("-".to_owned(), |time| format!("{:.2}ms", time.as_secs_f64() * 1e3))
}

/// Returns the bar of a pool: connections in use, idle, being established, and room for more.
fn pool(server: &Server, width: usize) -> Line {
    let counts = server.counts;
    let whole = server.connections_max.max(counts.total()).max(1);
    let mut line = Line::default();
    let (mut sum, mut drawn) = (0, 0);
    for (style, character, count) in [
        (Style::Good, '█', counts.in_use),
        (Style::Accent, '▒', counts.available),
        (Style::Busy, '░', counts.pending),
        (Style::Dim, '·', whole - counts.total()),
    ] {
        sum += u64::from(count);
        // Never more than `width`.
        let end = usize::try_from(sum * width as u64 / u64::from(whole)).unwrap_or(width);
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
    if let Some(demo) = &state.demo {
        let freeze = match &demo.frozen {
            None => " freeze the primary  ".to_owned(),
            Some(address) => format!(" thaw {address}  "),
        };
        line = line.and(Style::Key, " f ").and(Style::Plain, " fail over  ");
        line = line.and(Style::Key, " z ").and(Style::Plain, freeze);
    }
    line.and(Style::Key, " q ").and(Style::Plain, " quit")
}

#[cfg(test)]
mod tests;
