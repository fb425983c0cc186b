//! The events of selections.
//!
//! Read first: Server Selection, "Logging".

use crate::client_core::{ClientCore, State};
use crate::error::OperationError;
use crate::event::{EventKinds, Publish as _, SelectionEvent, SelectionStage, Tap};
use crate::runtime::Runtime;
use crate::select::SelectionRequest;
use alloc::string::{String, ToString as _};
use core::task::Poll;
use core::time::Duration;
use poolhouse_core::selection::Selector;
use poolhouse_core::{Instant, Observer as _};

/// The operation of a selection, for its events.
pub(crate) struct Operation<'a> {
    /// The name and the id, if it has them.
    name: Option<(&'a str, i64)>,
    /// The kinds of events with a subscriber, at the begin of the operation: all of its selections
    /// have the same.
    kinds: EventKinds,
    /// Whether one of its selections has waited: only the first wait has a log message.
    ///
    /// Source: Server Selection, "Logging".
    has_waited: bool,
}

impl<'a> Operation<'a> {
    pub(crate) const fn named(name: &'a str, id: i64, kinds: EventKinds) -> Self {
        Self { name: Some((name, id)), kinds, has_waited: false }
    }

    /// Whether each selection has events, and not only those that wait.
    #[inline]
    pub(crate) const fn is_observed(&self) -> bool {
        self.kinds.intersects(EventKinds::SELECTIONS)
    }
}

impl<R: Runtime> ClientCore<R> {
    /// Whether a selection that begins now has events.
    #[inline]
    pub(crate) fn observes_selections(&self) -> bool {
        self.events().kinds().intersects(EventKinds::SELECTIONS)
    }

    /// An operation without a name that begins now.
    pub(crate) fn operation(&self) -> Operation<'static> {
        Operation { name: None, kinds: self.events().kinds(), has_waited: false }
    }
}

/// The events of one selection: a start is followed by one end, also if the selection is dropped.
pub(super) struct Observed<'a, 'o> {
    operation: &'a mut Operation<'o>,
    /// Empty if no kind of event has a subscriber.
    selector: String,
    has_started: bool,
    has_ended: bool,
    /// When its wait began, until that ends.
    waits_since: Option<Instant>,
}

impl<'a, 'o> Observed<'a, 'o> {
    pub(super) fn new(operation: &'a mut Operation<'o>, request: &SelectionRequest<'_>) -> Self {
        let has_events = operation.kinds.intersects(EventKinds::SELECTIONS | EventKinds::SELECTION_WAITS);
        let selector = if has_events { request.criteria.to_string() } else { String::new() };
        Self { operation, selector, has_started: false, has_ended: false, waits_since: None }
    }

    /// Publishes the start, at the first attempt.
    pub(super) fn publish_start<R: Runtime>(&mut self, state: &State<R>, now: Instant, tap: &mut Tap<'_, R::Events>) {
        if self.operation.is_observed() && !core::mem::replace(&mut self.has_started, true) {
            self.publish(state, now, SelectionStage::Started, tap);
        }
    }

    /// Publishes the end after the last attempt, or the wait after the first one.
    pub(super) fn publish_outcome<R: Runtime>(
        &mut self,
        state: &State<R>,
        now: Instant,
        selector: &Selector,
        selected: &Poll<Result<R::ServerHandle, OperationError>>,
        tap: &mut Tap<'_, R::Events>,
    ) {
        let end = match selected {
            Poll::Pending => return self.publish_wait(state, now, selector, tap),
            Poll::Ready(Ok(server)) => SelectionStage::Succeeded { address: server.address() },
            Poll::Ready(Err(error)) => SelectionStage::Failed { error: Some(error) },
        };
        self.publish_end_of_wait(state, now, matches!(selected, Poll::Ready(Ok(_))), tap);
        if self.has_started && !core::mem::replace(&mut self.has_ended, true) {
            self.publish(state, now, end, tap);
        }
    }

    fn publish_wait<R: Runtime>(
        &mut self,
        state: &State<R>,
        now: Instant,
        selector: &Selector,
        tap: &mut Tap<'_, R::Events>,
    ) {
        let is_observed = self.operation.kinds.intersects(EventKinds::SELECTION_WAITS);
        if is_observed && self.waits_since.is_none() {
            self.waits_since = Some(now);
            let again = core::mem::replace(&mut self.operation.has_waited, true);
            let limit = selector.deadline().filter(|limit| *limit < Instant::MAX);
            let remaining: Option<Duration> = limit.map(|limit| limit.saturating_since(now));
            self.publish(state, now, SelectionStage::Waiting { remaining, again }, tap);
        }
    }

    fn publish_end_of_wait<R: Runtime>(
        &mut self,
        state: &State<R>,
        now: Instant,
        is_selected: bool,
        tap: &mut Tap<'_, R::Events>,
    ) {
        if let Some(since) = self.waits_since.take() {
            let duration = now.saturating_since(since);
            self.publish(state, now, SelectionStage::Waited { duration, is_selected }, tap);
        }
    }

    /// Publishes the ends of a selection, and of its wait, that was dropped.
    pub(super) fn publish_drop<R: Runtime>(&mut self, core: &ClientCore<R>) {
        let has_ended = !self.has_started || core::mem::replace(&mut self.has_ended, true);
        if has_ended && self.waits_since.is_none() {
            return;
        }
        // The drop may run during a panic, in which another panic aborts the process.
        let _ = R::contain(|| {
            core.step(|state, now, tap| {
                self.publish_end_of_wait(state, now, false, tap);
                if !has_ended {
                    self.publish(state, now, SelectionStage::Failed { error: None }, tap);
                }
            });
        });
    }

    fn publish<R: Runtime>(
        &self,
        state: &State<R>,
        now: Instant,
        stage: SelectionStage<'_>,
        tap: &mut Tap<'_, R::Events>,
    ) {
        let event = SelectionEvent {
            stage,
            selector: &self.selector,
            operation: self.operation.name.map(|(name, _)| name),
            operation_id: self.operation.name.map(|(_, id)| id),
            topology: state.control.topology().description(),
        };
        tap.on_event(now, &event);
    }
}
