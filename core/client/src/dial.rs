//! Connecting to a host that has several addresses, of which some may be dead.
//!
//! Read first: RFC 8305 (Happy Eyeballs Version 2), "Sorting Addresses" and "Connection Attempts".

#[cfg(test)]
pub(super) mod tests;

use super::Platform;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::future::{pending, poll_fn};
use core::net::{IpAddr, SocketAddr};
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use core::time::Duration;
use std::io;

/// How long an attempt is alone before the next one begins beside it.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Addresses of a host beyond these are not tried.
const ATTEMPTS_MAX: usize = 64;

/// The addresses of a host; that of one which is an address itself needs nobody to resolve it.
pub(super) async fn addresses<P: Platform>(platform: &P, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let addresses = match host.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, port)],
        Err(_) => platform.resolve(host, port).await?,
    };
    if addresses.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(addresses)
}

/// Connects to one of these addresses, whichever answers first.
///
/// Tries them in turn, the two families alternating, and begins with the next one when one fails, or has not answered
/// for 250 ms; those that are under way go on beside it. The first that is connected wins, the others are dropped.
///
/// # Errors
///
/// All have failed: that of the last. That this machine has no way to an address is reported only if it has none to any of them.
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

/// The first success there is, else the last failure. Attempts that have failed are removed.
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

/// Whether this machine has no route to the address. Often it has IPv4 only, and the host also has an IPv6 address.
fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind as E;
    matches!(error.kind(), E::NetworkUnreachable | E::HostUnreachable | E::AddrNotAvailable | E::Unsupported)
}

/// The families in turn, beginning with that of the first address; within one, the order that is given.
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
