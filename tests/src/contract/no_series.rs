//! A recorder of metrics that refuses every series.

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use std::panic::resume_unwind;

/// Panics when a series is registered, without a message. A pool whose series cannot be registered
/// has no metrics, which would observe each of its events.
#[derive(Debug)]
pub(super) struct NoSeries;

impl Recorder for NoSeries {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        resume_unwind(Box::new("no series"))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        resume_unwind(Box::new("no series"))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        resume_unwind(Box::new("no series"))
    }
}
