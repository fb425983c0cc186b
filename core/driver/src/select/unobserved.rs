//! Selections without events: an event needs a heap.

use crate::client_core::{ClientCore, State};
use crate::error::OperationError;
use crate::event::Tap;
use crate::runtime::Runtime;
use crate::select::SelectionRequest;
use core::marker::PhantomData;
use core::task::Poll;
use poolhouse_core::Instant;
use poolhouse_core::selection::Selector;

pub(crate) struct Operation<'a>(PhantomData<&'a ()>);

impl Operation<'_> {
    #[inline]
    pub(crate) const fn is_observed(&self) -> bool {
        false
    }
}

impl<R: Runtime> ClientCore<R> {
    #[inline]
    pub(crate) const fn observes_selections(&self) -> bool {
        false
    }

    #[inline]
    pub(crate) const fn operation(&self) -> Operation<'static> {
        Operation(PhantomData)
    }
}

pub(super) struct Observed<'a, 'o>(PhantomData<&'a mut Operation<'o>>);

impl<'a, 'o> Observed<'a, 'o> {
    pub(super) const fn new(_operation: &'a mut Operation<'o>, _request: &SelectionRequest<'_>) -> Self {
        Self(PhantomData)
    }

    #[inline]
    pub(super) const fn publish_start<R: Runtime>(&self, _: &State<R>, _: Instant, _: &mut Tap<'_, R::Events>) {}

    #[inline]
    pub(super) const fn publish_outcome<R: Runtime>(
        &self,
        _: &State<R>,
        _: Instant,
        _: &Selector,
        _: &Poll<Result<R::ServerHandle, OperationError>>,
        _: &mut Tap<'_, R::Events>,
    ) {
    }

    #[inline]
    pub(super) const fn publish_drop<R: Runtime>(&self, _: &ClientCore<R>) {}
}
