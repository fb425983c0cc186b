//! The futures that run sessions.
//!
//! A lane is a future of the runner with memory for one session after the other, for the stream
//! with which it shares a [`Mailbox`].

use core::future::poll_fn;
use core::task::Poll;
use embassy_futures::select::{Either, select};
use embedded_io_async::{Read, Write};
use poolhouse_core::Cause;

use super::mailbox::{Mailbox, Order, Task};
use super::options::TlsConfig;
use super::session::Session;
use super::watch::Watch;
use crate::config::Random;

/// The maximum number of bytes that are copied to a session at a time.
const CHUNK_BYTES: usize = 128;

/// Runs one session after the other, for ever.
///
/// - `receive`, `send`: the record buffers of the sessions.
pub(crate) async fn run<S: Read + Write>(
    mailbox: &Mailbox<S>,
    config: &TlsConfig,
    random: Random,
    receive: &mut [u8],
    send: &mut [u8],
) -> ! {
    loop {
        let mut order = mailbox.ordered().await;
        let outcome = converse(mailbox, &mut order, config, random, receive, send).await;
        mailbox.end(outcome);
        // The socket is returned only after the stream is dropped, so a stream never uses the
        // mailbox during the next session.
        mailbox.released().await;
        drop(order);
    }
}

/// Runs one session until it ends or its stream is dropped.
async fn converse<S: Read + Write>(
    mailbox: &Mailbox<S>,
    order: &mut Order<S>,
    config: &TlsConfig,
    random: Random,
    receive: &mut [u8],
    send: &mut [u8],
) -> Result<(), Cause> {
    let watch = Watch::new();
    let mut session = Some(Session::new(&mut order.socket, &watch, receive, send));
    let Some(open) = &mut session else { return Ok(()) };
    let served = select(mailbox.released(), serve(mailbox, open, &order.host, config, random)).await;
    if let Either::Second(outcome) = served {
        return outcome;
    }
    poll_fn(|context| {
        if let Some(session) = session.take() {
            session.goodbye(context);
        }
        Poll::Ready(())
    })
    .await;
    Ok(())
}

async fn serve<S: Read + Write>(
    mailbox: &Mailbox<S>,
    session: &mut Session<'_, &mut S>,
    host: &str,
    config: &TlsConfig,
    random: Random,
) -> Result<(), Cause> {
    session.open(host, config, random).await?;
    mailbox.open();
    loop {
        match mailbox.task().await {
            Task::Write { flush } => {
                let mut chunk = [0; CHUNK_BYTES];
                loop {
                    let count = mailbox.take_outgoing(&mut chunk);
                    if count == 0 {
                        break;
                    }
                    session.write_all(chunk.get(..count).unwrap_or_default()).await?;
                }
                if flush {
                    session.flush().await?;
                    mailbox.flushed();
                }
            }
            Task::Read => {
                let goes_on = session.read(|bytes| mailbox.put_incoming(bytes)).await?;
                if !goes_on {
                    return Ok(());
                }
            }
        }
    }
}
