//! Samples of the resources of the process, and of its connections on the servers; detects growth, and
//! draws it.

use core::sync::atomic::{AtomicI64, Ordering};
use core::time::Duration;
use poolhouse_allocator::Counting;
use serde_json::{Value, json};
use std::fs;

/// Bytes that are allocated.
static ALLOCATED: AtomicI64 = AtomicI64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting(|taken, given| {
    ALLOCATED.fetch_add(taken.cast_signed() as i64 - given.cast_signed() as i64, Ordering::Relaxed);
});

pub(crate) fn allocated_kib() -> i64 {
    ALLOCATED.load(Ordering::Relaxed) / 1024
}

/// One sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    /// Open descriptors of the process, without those of its proxies.
    pub(crate) descriptors: i64,
    /// Resident memory, KiB.
    pub(crate) resident_kib: i64,
    /// Allocated memory, KiB, with that of the proxies.
    pub(crate) allocated_kib: i64,
    pub(crate) threads: i64,
    /// Number of tasks of the client.
    pub(crate) tasks: i64,
    /// Connections as counted by the client.
    pub(crate) pooled: i64,
    /// Connections of the client as counted by the servers; `None` unless all servers answer.
    pub(crate) served: Option<i64>,
    /// Open sockets of the proxies, of both sides.
    pub(crate) proxied: i64,
}

/// Returns the number of open descriptors of this process, without the one used for counting.
pub(crate) fn descriptors() -> i64 {
    fs::read_dir("/proc/self/fd").map_or(0, |entries| i64::try_from(entries.count()).unwrap_or(i64::MAX) - 1)
}

/// Returns a numeric field of `/proc/self/status`.
pub(crate) fn status(name: &str) -> i64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// A sampled quantity, and the apparent growth over the second half of a run that is tolerated as
/// noise.
struct Series {
    name: &'static str,
    of: fn(&Sample) -> Option<i64>,
    /// For runs of at least `MANY` samples, and for shorter runs, in which half the run has few
    /// samples.
    bounds: (f64, f64),
}

const SERIES: [Series; 8] = [
    Series { name: "descriptors", of: |it| Some(it.descriptors), bounds: (15.0, 45.0) },
    Series { name: "resident_kib", of: |it| Some(it.resident_kib), bounds: (2048.0, 24_576.0) },
    Series { name: "allocated_kib", of: |it| Some(it.allocated_kib), bounds: (512.0, 4096.0) },
    Series { name: "threads", of: |it| Some(it.threads), bounds: (1.0, 2.0) },
    Series { name: "tasks", of: |it| Some(it.tasks), bounds: (15.0, 45.0) },
    Series { name: "pooled", of: |it| Some(it.pooled), bounds: (15.0, 45.0) },
    Series { name: "served", of: |it| it.served, bounds: (20.0, 60.0) },
    Series { name: "proxied", of: |it| Some(it.proxied), bounds: (30.0, 90.0) },
];

/// Number of samples from which on a run counts as long.
const MANY: usize = 40;

/// Returns the figures of all samples, and the quantities that grew.
pub(crate) fn judge(samples: &[Sample]) -> (Value, Vec<String>) {
    let (mut figures, mut wrong) = (serde_json::Map::new(), Vec::new());
    for Series { name, of, bounds } in SERIES {
        let points: Vec<(f64, f64)> =
            samples.iter().filter_map(|it| Some((it.at.as_secs_f64(), of(it)? as f64))).collect();
        let half = &points[points.len() / 2..];
        let values = || points.iter().map(|(_, value)| *value);
        let (least, most) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
        let bound = if half.len() < MANY { bounds.1 } else { bounds.0 };
        let drift = drift(half);
        figures.insert(
            name.to_owned(),
            json!({ "samples": points.len(), "min": least, "max": most, "drift": drift, "bound": bound }),
        );
        if points.len() < 4 {
            wrong.push(format!("{name}: too few samples: {}", points.len()));
        } else if drift > bound {
            wrong.push(format!("{name} grew by {drift:.1} over the second half; the tolerance is {bound}"));
        }
    }
    (Value::Object(figures), wrong)
}

/// Returns the rise of the regression line through these points from the first to the last.
fn drift(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (time, value) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|point| (point.0 - time).powi(2)).sum();
    let together: f64 = points.iter().map(|point| (point.0 - time) * (point.1 - value)).sum();
    match (points.first(), points.last()) {
        (Some(first), Some(last)) if spread > 0.0 => together / spread * (last.0 - first.0),
        _ => 0.0,
    }
}

/// A picture of memory and descriptors over time, each from zero to its maximum.
pub(crate) fn plot(samples: &[Sample]) -> String {
    let last = samples.last().map_or(1.0, |it| it.at.as_secs_f64().max(1.0));
    let mut picture = String::from(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 820 260' font-family='sans-serif' font-size='13'>\n<rect width='820' height='260' fill='white'/>\n",
    );
    for (line, (name, colour)) in
        [("resident_kib", "#b5179e"), ("allocated_kib", "#f77f00"), ("descriptors", "#3a0ca3")].into_iter().enumerate()
    {
        let Some(series) = SERIES.iter().find(|series| series.name == name) else { continue };
        let points: Vec<_> =
            samples.iter().filter_map(|it| Some((it.at.as_secs_f64(), (series.of)(it)? as f64))).collect();
        let most = points.iter().map(|point| point.1).fold(1.0, f64::max);
        let drawn: Vec<_> = points
            .iter()
            .map(|(at, value)| format!("{:.1},{:.1}", 10.0 + 800.0 * at / last, 230.0 - 190.0 * value / most))
            .collect();
        let from = 10 + 270 * line;
        picture += &format!("<polyline fill='none' stroke='{colour}' points='{}'/>\n", drawn.join(" "));
        picture += &format!("<text x='{from}' y='20' fill='{colour}'>{name}: at most {most}</text>\n");
    }
    picture
        + &format!(
            "<path d='M10 40V230H810' fill='none' stroke='black'/>\n<text x='700' y='250'>{last:.0} s</text>\n</svg>\n"
        )
}
