//! Connections before they are needed.

use super::error::OperationError;
use super::guard::{CheckingOut, Guard};
use super::hub::Hub;
use super::runtime::Runtime;
use super::select::Wanted;
use crate::Instant;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll};

impl<R: Runtime> Hub<R> {
    /// Waits until a server suits and its pool has so many connections established, so that the first operations find them.
    ///
    /// - `wanted`: which server. `conns`: how many connections, in use or available; no more than `maxPoolSize`. `None` is `minPoolSize`.
    /// - `deadline`: of all of it; serverSelectionTimeoutMS bounds the wait for the server besides. `None` is for ever, but each
    ///   connection may be waited for as long as waitQueueTimeoutMS says.
    ///
    /// What is missing is checked out, all at once, and returned when it is there. Connections beyond `minPoolSize` perish by
    /// `maxIdleTimeMS` like any other. Cost: one allocation of so many places. Events: those of the check-outs.
    ///
    /// # Errors
    ///
    /// [`OperationError::ServerSelection`], [`OperationError::Closed`]: no server in time. [`OperationError::CheckOut`],
    /// [`OperationError::Authentication`]: the first connection that could not be established, or not in time.
    /// [`OperationError::Busy`]: no memory.
    pub async fn warm_up(
        &self,
        wanted: &Wanted<'_>,
        conns: Option<u32>,
        deadline: Option<Instant>,
    ) -> Result<(), OperationError> {
        let server = self.select_server(wanted, deadline).await?;
        let config = self.pool_config();
        let max = if config.options().max_pool_size == 0 { u32::MAX } else { config.options().max_pool_size };
        let count = conns.unwrap_or(config.options().min_pool_size).min(max);
        let is_warm = || {
            let counts = server.pool_snapshot().counts;
            counts.in_use.saturating_add(counts.available) >= count
        };
        if is_warm() {
            return Ok(());
        }
        let mut places = Vec::new();
        places.try_reserve_exact(count as usize).map_err(|_| OperationError::Busy)?;
        places.extend((0..count).map(|_| Warming::Waits(CheckingOut::new(self, server.clone(), deadline, deadline))));
        poll_fn(|context| {
            for place in &mut places {
                if let Poll::Ready(Err(error)) = place.poll(context) {
                    return Poll::Ready(Err(error));
                }
            }
            let all = places.iter().all(|place| matches!(place, Warming::Is(_)));
            // Also by what others established meanwhile.
            if all || is_warm() { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }
}

/// A connection that is on its way, or there and kept until all are.
enum Warming<'h, R: Runtime> {
    Waits(CheckingOut<'h, R>),
    Is(Guard<'h, R>),
}

impl<R: Runtime> Warming<'_, R> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), OperationError>> {
        match self {
            Self::Waits(checking_out) => match Pin::new(checking_out).poll(context) {
                Poll::Ready(Ok(guard)) => {
                    *self = Self::Is(guard);
                    Poll::Ready(Ok(()))
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            },
            Self::Is(_) => Poll::Ready(Ok(())),
        }
    }
}
