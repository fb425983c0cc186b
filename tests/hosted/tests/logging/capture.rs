//! The process's log subscriber: stores the client's messages, as JSON.

use core::fmt;
use serde_json::{Map, Value, json};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

static MESSAGES: Mutex<Vec<Message>> = Mutex::new(Vec::new());

/// One log message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) level: String,
    pub(crate) component: String,
    pub(crate) data: Value,
}

/// Subscribes to all messages of this project.
pub(crate) fn install() {
    tracing::subscriber::set_global_default(Capture).expect("the first of the process");
}

fn messages() -> MutexGuard<'static, Vec<Message>> {
    MESSAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Discards the messages so far.
pub(crate) fn clear() {
    messages().clear();
}

/// The messages so far.
pub(crate) fn taken() -> Vec<Message> {
    messages().clone()
}

struct Capture;

impl Subscriber for Capture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("poolhouse::")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        let component = event.metadata().target().trim_start_matches("poolhouse::").to_owned();
        messages().push(Message { level, component, data: Value::Object(fields.0) });
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Fields(Map<String, Value>);

impl Fields {
    fn keep(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.keep(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.keep(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.keep(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.keep(field, json!(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.keep(field, json!(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.keep(field, json!(format!("{value:?}")));
    }
}
