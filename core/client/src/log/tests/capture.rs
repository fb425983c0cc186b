//! A subscriber of one thread that keeps the events that it receives.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use std::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// A captured event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Captured {
    pub(crate) level: Level,
    pub(crate) target: String,
    pub(crate) fields: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_string())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Unsigned(number)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Signed(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl Captured {
    pub(crate) fn message(&self) -> &str {
        self.text("message")
    }

    pub(crate) fn text(&self, field: &str) -> &str {
        match self.fields.get(field) {
            Some(Value::Text(text)) => text,
            other => panic!("{field} is no text but {other:?} in {self:?}"),
        }
    }

    /// Checks level, target and all fields: no other field may be present.
    pub(crate) fn check(&self, target: &str, fields: &[(&str, Value)]) {
        assert_eq!((self.level, self.target.as_str()), (Level::DEBUG, target), "{self:?}");
        let expected: BTreeMap<String, Value> =
            fields.iter().map(|(name, value)| ((*name).to_string(), value.clone())).collect();
        assert_eq!(self.fields, expected);
    }
}

struct Capture {
    wants: fn(&Metadata<'_>) -> bool,
    events: Arc<Mutex<Vec<Captured>>>,
}

/// Returns the events that this thread logs while `act` runs and that pass the filter `wants`.
pub(crate) fn capture_where(wants: fn(&Metadata<'_>) -> bool, act: impl FnOnce()) -> Vec<Captured> {
    let events = Arc::new(Mutex::new(Vec::new()));
    tracing::subscriber::with_default(Capture { wants, events: Arc::clone(&events) }, act);
    core::mem::take(&mut *events.lock().expect("not poisoned"))
}

/// Returns the events that this thread logs while `act` runs.
pub(crate) fn capture(act: impl FnOnce()) -> Vec<Captured> {
    capture_where(|_| true, act)
}

impl Subscriber for Capture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        (self.wants)(metadata)
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let (level, target) = (*event.metadata().level(), event.metadata().target().to_string());
        self.events.lock().expect("not poisoned").push(Captured { level, target, fields: fields.0 });
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Fields(BTreeMap<String, Value>);

impl Fields {
    fn keep(&mut self, field: &Field, value: impl Into<Value>) {
        assert!(self.0.insert(field.name().to_string(), value.into()).is_none(), "{field} twice");
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.keep(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.keep(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.keep(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.keep(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.keep(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.keep(field, format!("{value:?}").as_str());
    }
}
