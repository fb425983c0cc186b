//! Connecting to a host with several addresses, some of which may be unreachable.
//!
//! Read first: RFC 8305 (Happy Eyeballs Version 2), "Sorting Addresses" and "Connection Attempts".

#[cfg(test)]
pub(super) mod tests;

use super::Platform;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::future::{pending, poll_fn};
use core::net::SocketAddr;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use core::time::Duration;
use std::io;

/// The time before the next attempt starts in parallel with the pending ones.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// The maximum number of addresses of a host that are tried; further ones are ignored.
const ATTEMPTS_MAX: usize = 64;

/// Connects to the address that accepts a connection first.
///
/// The attempts alternate between the two address families. The next attempt starts when an attempt
/// fails, or 250 ms after the previous attempt started; pending attempts continue in parallel. The
/// first connection is returned, and the other attempts are dropped.
///
/// # Errors
///
/// The last error, if all attempts failed. An error that means "no route to this address" is
/// returned only if all attempts failed with such an error.
pub(super) async fn connect_any<P: Platform>(platform: &P, addresses: &[SocketAddr]) -> io::Result<P::Tcp> {
    let mut waiting = interleaved(addresses).take(ATTEMPTS_MAX).peekable();
    let mut attempts = Vec::new();
    let mut error: Option<io::Error> = None;
    loop {
        match waiting.next() {
            Some(address) => attempts.push(Box::pin(platform.connect_tcp(address))),
            None if attempts.is_empty() => return Err(error.unwrap_or_else(|| io::ErrorKind::NotFound.into())),
            None => {}
        }
        let next_at = waiting.peek().map(|_| platform.now().saturating_add(ATTEMPT_DELAY));
        let mut delay = pin!(async {
            match next_at {
                Some(at) => platform.sleep_until(at).await,
                None => pending().await,
            }
        });
        let outcome = poll_fn(|context| match poll_first(&mut attempts, context) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending => delay.as_mut().poll(context).map(|()| None),
        });
        match outcome.await {
            Some(Ok(socket)) => return Ok(socket),
            Some(Err(failed)) if !is_unreachable(&failed) || error.as_ref().is_none_or(is_unreachable) => {
                error = Some(failed);
            }
            Some(Err(_)) => {}
            None => {}
        }
    }
}

/// Polls the attempts and returns the first success, or else the last failure. Removes finished
/// attempts.
fn poll_first<T, F>(attempts: &mut Vec<Pin<Box<F>>>, context: &mut Context<'_>) -> Poll<io::Result<T>>
where
    F: Future<Output = io::Result<T>>,
{
    let mut outcome = Poll::Pending;
    attempts.retain_mut(|attempt| {
        if matches!(outcome, Poll::Ready(Ok(_))) {
            return true;
        }
        let polled = attempt.as_mut().poll(context);
        let going = polled.is_pending();
        if !going {
            outcome = polled;
        }
        going
    });
    outcome
}

/// Whether this machine has no route to the address. Common for an IPv6 address of a host when this
/// machine has IPv4 only.
fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind as E;
    matches!(error.kind(), E::NetworkUnreachable | E::HostUnreachable | E::AddrNotAvailable | E::Unsupported)
}

/// Alternates between the address families, beginning with the family of the first address. Keeps
/// the order within a family.
fn interleaved(addresses: &[SocketAddr]) -> impl Iterator<Item = SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let of =
        move |first: bool| addresses.iter().copied().filter(move |address| (address.is_ipv6() == first_is_v6) == first);
    let (mut first, mut second) = (of(true), of(false));
    let mut turn = false;
    core::iter::from_fn(move || {
        turn = !turn;
        if turn { first.next().or_else(|| second.next()) } else { second.next().or_else(|| first.next()) }
    })
}
