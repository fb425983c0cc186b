//! A subscriber of one thread that keeps its spans.

use crate::fields::Fields;
use alloc::sync::Arc;
use bson::Document;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber, span};

/// A span.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    pub(crate) id: u64,
    pub(crate) parent: Option<u64>,
    pub(crate) name: &'static str,
    pub(crate) fields: Document,
    pub(crate) is_closed: bool,
    handles: usize,
}

impl Captured {
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.fields.get_str(field).ok()
    }
}

/// The spans of a thread, in the order of their creation. The id of a span is its number from 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    spans: Vec<Captured>,
    /// The spans that are entered now, the current one last.
    entered: Vec<u64>,
}

impl Spans {
    /// Receives the spans of this thread that pass the filter, until the guard is dropped.
    pub(crate) fn subscribe(&self, wants: fn(&Metadata<'_>) -> bool) -> DefaultGuard {
        tracing::subscriber::set_default(Capture { wants, spans: self.clone() })
    }

    pub(crate) fn taken(&self) -> Vec<Captured> {
        self.lock().spans.clone()
    }

    pub(crate) fn entered(&self) -> Vec<u64> {
        self.lock().entered.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, id: &span::Id, change: impl FnOnce(&mut Captured) -> T) -> T {
        let place = usize::try_from(id.into_u64() - 1).expect("an index");
        change(&mut self.lock().spans[place])
    }
}

struct Capture {
    wants: fn(&Metadata<'_>) -> bool,
    spans: Spans,
}

impl Subscriber for Capture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && (self.wants)(metadata)
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let mut shared = self.spans.lock();
        let current = shared.entered.last().copied().filter(|_| attributes.is_contextual());
        let parent = attributes.parent().map(span::Id::into_u64).or(current);
        let id = shared.spans.len() as u64 + 1;
        let name = attributes.metadata().name();
        shared.spans.push(Captured { id, parent, name, fields: fields.0, is_closed: false, handles: 1 });
        span::Id::from_u64(id)
    }

    fn record(&self, id: &span::Id, values: &span::Record<'_>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        self.spans.change(id, |span| span.fields.extend(fields.0));
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &span::Id) {
        self.spans.lock().entered.push(id.into_u64());
    }

    fn exit(&self, id: &span::Id) {
        assert_eq!(self.spans.lock().entered.pop(), Some(id.into_u64()));
    }

    fn clone_span(&self, id: &span::Id) -> span::Id {
        self.spans.change(id, |span| span.handles += 1);
        id.clone()
    }

    fn try_close(&self, id: span::Id) -> bool {
        self.spans.change(&id, |span| {
            span.handles -= 1;
            span.is_closed = span.handles == 0;
            span.is_closed
        })
    }
}
