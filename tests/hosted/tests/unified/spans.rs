//! The spans of a client (`expectTracingMessages`).
//!
//! Read first: Unified Test Format, "expectedTracingSpans".
//!
//! A client creates its spans where its functions are called: on the thread of the test, which has its own
//! subscriber.

use crate::captured::{Captured, Spans};
use crate::error::Stop;
use crate::matching::{self, Entities};
use crate::run::documents;
use bson::{Bson, Document};
use core::cell::RefCell;
use poolhouse_smol::TracingOptions;
use tracing::subscriber::DefaultGuard;

/// The spans of one test.
#[derive(Default)]
pub(crate) struct Traces {
    spans: Spans,
    /// The client that the test observes.
    observed: RefCell<Option<String>>,
}

impl Traces {
    /// Receives the spans of this thread, until the guard is dropped.
    pub(crate) fn subscribe(&self) -> DefaultGuard {
        self.spans.subscribe(|metadata| metadata.target().starts_with("poolhouse::"))
    }

    /// The options of a client.
    pub(crate) fn options(&self, id: &str, entity: &Document) -> Result<TracingOptions, Stop> {
        let Ok(wanted) = entity.get_document("observeTracingMessages") else { return Ok(TracingOptions::DEFAULT) };
        if self.observed.replace(Some(id.to_owned())).is_some() {
            return Err(Stop::Unsupported("spans of several clients".to_owned()));
        }
        let has_text = wanted.get_bool("enableCommandPayload").unwrap_or(false);
        Ok(TracingOptions::DEFAULT.enabled(true).query_text_length_max(if has_text { 10_000 } else { 0 }))
    }

    /// Compares the spans so far, which must have ended.
    pub(crate) fn check(&self, expected: &Document, entities: &dyn Entities) -> Result<(), String> {
        if self.observed.borrow().as_deref() != expected.get_str("client").ok() {
            return Err("the client is not observed".to_owned());
        }
        let (found, entered) = (self.spans.taken(), self.spans.entered());
        if !entered.is_empty() {
            return Err(format!("spans are entered: {entered:?}"));
        }
        let may_have_more = expected.get_bool("ignoreExtraSpans").unwrap_or(false);
        let compared = check_all(expected, "spans", None, &found, may_have_more, entities);
        compared.map_err(|error| {
            let shown = |it: &Captured| format!("{} {} of {:?}: {}", it.name, it.id, it.parent, it.fields);
            let shown: Vec<_> = found.iter().map(shown).collect();
            format!("{error}\n    {}", shown.join("\n    "))
        })
    }
}

/// Compares the spans within `parent` with a list of patterns.
fn check_all(
    pattern: &Document,
    list: &str,
    parent: Option<u64>,
    all: &[Captured],
    may_have_more: bool,
    entities: &dyn Entities,
) -> Result<(), String> {
    let mut spans = all.iter().filter(|span| span.parent == parent);
    for pattern in documents(pattern, list) {
        let wanted = pattern.get_str("name").map_err(|error| error.to_string())?;
        let span = if may_have_more { spans.find(|span| name(span) == wanted) } else { spans.next() };
        let span = span.ok_or_else(|| format!("{wanted} is missing"))?;
        check(pattern, span, entities).map_err(|error| format!("{wanted}: {error}"))?;
        check_all(pattern, "nested", Some(span.id), all, may_have_more, entities)?;
    }
    match spans.next() {
        Some(span) if !may_have_more => Err(format!("unexpected: {}", name(span))),
        _ => Ok(()),
    }
}

fn name(span: &Captured) -> &str {
    span.text("otel.name").unwrap_or_default()
}

fn check(pattern: &Document, span: &Captured, entities: &dyn Entities) -> Result<(), String> {
    if !span.is_closed {
        return Err("it has not ended".to_owned());
    }
    let mut fields = span.fields.clone();
    // A session is compared by its document.
    if let Some(id) = span.text("db.mongodb.lsid") {
        let id = bson::Uuid::parse_str(id).map_err(|error| format!("db.mongodb.lsid: {error}"))?;
        fields.insert("db.mongodb.lsid", bson::doc! { "id": id });
    }
    for (field, wanted) in pattern {
        match field.as_str() {
            "name" if wanted.as_str() == Some(name(span)) => {}
            "attributes" => matching::check(wanted, Some(&Bson::Document(fields.clone())), entities)?,
            "nested" => {}
            _ => return Err(format!("{}, expected {field} {wanted}", name(span))),
        }
    }
    Ok(())
}
