//! No spans: the feature `tracing` is disabled.

use crate::connection::Parts;
use crate::session::SessionState;
use crate::{Client, Error, Net, Platform};
use poolhouse_driver::Guard;
use poolhouse_wire::bson::RawDocument;

pub(crate) enum OperationSpan {}

pub(crate) enum CommandSpan {}

#[derive(Clone)]
pub(crate) enum TransactionSpan {}

impl<P: Platform> Client<P> {
    #[inline]
    pub(crate) const fn operation_span(
        &self,
        _transaction: Option<&TransactionSpan>,
        _database: &str,
        _command: &[u8],
    ) -> Option<OperationSpan> {
        None
    }

    #[inline]
    pub(crate) const fn transaction_end_span(
        &self,
        _transaction: Option<&TransactionSpan>,
        _name: &str,
    ) -> Option<OperationSpan> {
        None
    }

    #[inline]
    pub(crate) const fn transaction_span(&self) -> Option<TransactionSpan> {
        None
    }

    #[inline]
    pub(crate) const fn command_span(
        &self,
        _: &Guard<'_, Net<P>>,
        _: &SessionState<P>,
        _: &Parts<'_>,
    ) -> Option<CommandSpan> {
        None
    }
}

impl OperationSpan {
    pub(crate) async fn run<T>(self, _operation: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        match self {}
    }
}

impl CommandSpan {
    pub(crate) async fn run<T>(&self, _sending: impl Future<Output = T>) -> T {
        match *self {}
    }

    pub(crate) const fn record(&self, _error: Option<&Error>, _reply: Option<RawDocument<'_>>) {
        match *self {}
    }
}
