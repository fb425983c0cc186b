//! The process's log subscriber: stores the messages of all clients.

use crate::fields::Fields;
use bson::Document;
use core::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::{Event, Metadata, Subscriber, span};

static MESSAGES: Mutex<Vec<Message>> = Mutex::new(Vec::new());

/// One log message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) level: String,
    pub(crate) component: String,
    pub(crate) data: Document,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.level, self.component, self.data)
    }
}

/// Subscribes to all messages of this project.
pub(crate) fn install() {
    tracing::subscriber::set_global_default(Capture).expect("the first of the process");
}

fn messages() -> MutexGuard<'static, Vec<Message>> {
    MESSAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of messages so far.
pub(crate) fn count() -> usize {
    messages().len()
}

/// The messages from this one on.
pub(crate) fn since(index: usize) -> Vec<Message> {
    messages()[index..].to_vec()
}

struct Capture;

impl Subscriber for Capture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !metadata.is_span() && metadata.target().starts_with("poolhouse::")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        let component = event.metadata().target().trim_start_matches("poolhouse::").to_owned();
        messages().push(Message { level, component, data: fields.0 });
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
