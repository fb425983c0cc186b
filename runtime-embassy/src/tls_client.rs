//! The client with TLS: its constructor, the memory of its sessions, and the runners of sessions.
//! The sessions are in [`tls`].

use crate::client::{Buffers, Client, Resources};
use crate::config::{Config, Random};
use crate::error::SetupError;
use crate::layout::{Layout, PerConnection, Zero};
use crate::network::Network;
use crate::run::{CoreRunner, Runner, ServerRunner};
use crate::slot::{Slot, Socket};
use crate::tls::{self, Mailbox, TlsConfig};
use core::fmt;
use core::future::pending;
use core::pin::pin;
use embassy_futures::join::join;
use embassy_net::Stack;

/// The TLS memory of a client, in addition to its [`Buffers`]. Store it in a static, which is
/// initialized with zeros: `ConstStaticCell<TlsBuffers<Sizes<1, 4, 8>>>`.
///
/// - `RECEIVE`: the largest encrypted record from servers, at least 768 bytes. 16,640 hold every
///   valid record; [`TlsOptions::max_fragment`](crate::TlsOptions::max_fragment) plus 256 are
///   enough for servers that obey it. A larger record ends the connection.
/// - `SEND`: the largest encrypted record that is sent, at least 640 bytes: 128 bytes more than its
///   content. Longer data is sent in several records. A client's certificate must fit, with 128
///   bytes.
/// - `PIECE`: bytes that are copied between a task and the session at a time, in either direction.
///
/// It takes `RECEIVE + SEND + 2 * PIECE` bytes for each of the [`Layout::SOCKETS`]. In addition,
/// the future of each session takes about 3 KiB, and with feature `rsa` 3.5 KiB.
pub struct TlsBuffers<L: Layout, const RECEIVE: usize = 16640, const SEND: usize = 1152, const PIECE: usize = 512> {
    lanes: L::PerConnection<LaneMemory<RECEIVE, SEND, PIECE>>,
}

impl<L: Layout, const RECEIVE: usize, const SEND: usize, const PIECE: usize> TlsBuffers<L, RECEIVE, SEND, PIECE> {
    /// Creates buffers filled with zeros. Sizes that are too small fail the build.
    #[must_use]
    pub const fn new() -> Self {
        const {
            assert!(RECEIVE >= RECEIVE_MIN, "RECEIVE must be at least 768");
            assert!(RECEIVE <= RECEIVE_MAX, "no record is larger than 16640 bytes");
            assert!(SEND >= SEND_MIN, "SEND must be at least 640");
            assert!(SEND <= RECEIVE_MAX, "no record is larger than 16640 bytes");
            assert!(PIECE > 0, "PIECE must be at least 1");
        }
        Self { lanes: Zero::ZERO }
    }
}

/// The size of the server's hello and of its handshake signature.
const RECEIVE_MIN: usize = 512 + 256;
const RECEIVE_MAX: usize = 16 * 1024 + 256;
/// The size of the client's hello: about 240 bytes and the server's name of at most 253 bytes.
const SEND_MIN: usize = 640;
/// The overhead of the message that contains the client's certificate.
const CERTIFICATE_OVERHEAD: usize = 128;

impl<L: Layout, const RECEIVE: usize, const SEND: usize, const PIECE: usize> Default
    for TlsBuffers<L, RECEIVE, SEND, PIECE>
{
    fn default() -> Self {
        Self::new()
    }
}

impl<L: Layout, const RECEIVE: usize, const SEND: usize, const PIECE: usize> fmt::Debug
    for TlsBuffers<L, RECEIVE, SEND, PIECE>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes may be secrets: only the size is shown.
        write!(f, "TlsBuffers({} bytes)", size_of::<Self>())
    }
}

/// The memory of one lane.
struct LaneMemory<const RECEIVE: usize, const SEND: usize, const PIECE: usize> {
    receive: [u8; RECEIVE],
    send: [u8; SEND],
    incoming: [u8; PIECE],
    outgoing: [u8; PIECE],
}

impl<const RECEIVE: usize, const SEND: usize, const PIECE: usize> Zero for LaneMemory<RECEIVE, SEND, PIECE> {
    const ZERO: Self = Self { receive: [0; RECEIVE], send: [0; SEND], incoming: [0; PIECE], outgoing: [0; PIECE] };
}

impl<const RECEIVE: usize, const SEND: usize, const PIECE: usize> fmt::Debug for LaneMemory<RECEIVE, SEND, PIECE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes may be secrets: only the sizes are shown.
        write!(f, "LaneMemory<{RECEIVE}, {SEND}, {PIECE}>")
    }
}

impl<L: Layout> Client<L> {
    /// [`Client::with_events`](Client::with_events) with TLS: every connection is encrypted.
    ///
    /// ```no_run
    /// use embassy_net::Stack;
    /// use poolhouse_embassy::{Buffers, Client, Config, MaxFragment, Options, Resources, SetupError, Sizes, TlsBuffers, TlsConfig, TlsOptions};
    ///
    /// type Small = Sizes<1, 4, 8>;
    /// // Records of 2 KiB, and what encryption adds to them.
    /// type SmallTls = TlsBuffers<Small, { 2048 + 256 }>;
    ///
    /// # const CA: &[u8] = &[];
    /// # fn fill_by_hardware(_bytes: &mut [u8]) {}
    /// # fn seconds_since_1970() -> u64 { 0 }
    /// // const CA: &[u8] = include_bytes!("ca.der");
    /// static CONFIG: Config =
    ///     Options { seeds: &["db.example.com"], random: Some(fill_by_hardware), ..Options::DEFAULT }.build();
    /// static TLS: TlsConfig =
    ///     TlsOptions::new(&[CA], seconds_since_1970).max_fragment(MaxFragment::Bytes2048).build();
    ///
    /// async fn run(
    ///     stack: Stack<'static>,
    ///     resources: &'static mut Resources<Small>,
    ///     buffers: &'static mut Buffers<Small>,
    ///     records: &'static mut SmallTls,
    /// ) -> Result<(), SetupError> {
    ///     let (client, runner) = Client::with_tls(resources, buffers, records, stack, &CONFIG, &TLS, ())?;
    ///     // Pass `client` to the tasks that use it; run this future in its own task.
    ///     # let _ = client;
    ///     runner.run().await
    /// }
    /// ```
    ///
    /// - `tls`: the options of encryption. [`Options::random`](crate::Options::random) must be set.
    ///
    /// # Errors
    ///
    /// [`SetupError`], also if random bytes are missing, certificates cannot be decoded, or the
    /// memory is too small for the options.
    pub fn with_tls<const RECEIVE: usize, const SEND: usize, const PIECE: usize>(
        resources: &'static mut Resources<L>,
        buffers: &'static mut Buffers<L>,
        tls_buffers: &'static mut TlsBuffers<L, RECEIVE, SEND, PIECE>,
        network: L::Network,
        config: &'static Config,
        tls: &'static TlsConfig,
        events: L::Events,
    ) -> Result<(Self, TlsRunner<L, RECEIVE, SEND, PIECE>), SetupError> {
        let random = config.options().random.ok_or(SetupError::NoRandom)?;
        if !tls.is_readable() {
            return Err(SetupError::TlsCertificate);
        }
        let options = tls.options();
        let least = options.max_fragment.map_or(0, |fragment| fragment.bytes() + 256);
        let certificate = options.identity.map_or(0, |identity| identity.certificate.len() + CERTIFICATE_OVERHEAD);
        if RECEIVE < least || SEND < certificate {
            return Err(SetupError::TlsRecords);
        }
        let (client, runner) = Self::build(resources, buffers, network, config, events, true)?;
        Ok((client, TlsRunner { runner, buffers: tls_buffers, tls, random }))
    }
}

/// The [`Runner`] of a client with TLS. It contains the sessions.
#[must_use = "without it a client is closed"]
pub struct TlsRunner<L: Layout, const RECEIVE: usize, const SEND: usize, const PIECE: usize> {
    runner: Runner<L>,
    buffers: &'static mut TlsBuffers<L, RECEIVE, SEND, PIECE>,
    tls: &'static TlsConfig,
    random: Random,
}

impl<L: Layout, const RECEIVE: usize, const SEND: usize, const PIECE: usize> TlsRunner<L, RECEIVE, SEND, PIECE> {
    /// Runs the work of [`Runner::run`] and all encryption.
    ///
    /// One task for everything is the simplest choice for one server. With more servers, its start
    /// needs a large stack: see [`TlsRunner::split`].
    pub async fn run(self) -> ! {
        let (runner, mut sessions) = self.into_parts();
        let sessions = pin!(L::run_per_connection(|_| {
            let session = sessions.next();
            async {
                match session {
                    Some(session) => session.run().await,
                    // Not reached: there are as many sessions as connections.
                    None => pending().await,
                }
            }
        }));
        join(runner.run(), sessions).await;
        pending().await
    }

    /// Splits the work into several tasks: see [`Runner::split`]. The iterator yields an additional
    /// runner for each of the [`Layout::SOCKETS`].
    pub fn split(
        self,
    ) -> (
        CoreRunner<L>,
        ServerRunner<L>,
        impl Iterator<Item = TlsSessions<RECEIVE, SEND, PIECE, L::Network>> + use<L, RECEIVE, SEND, PIECE>,
    ) {
        let (runner, sessions) = self.into_parts();
        let (core, server) = runner.split();
        (core, server, sessions)
    }

    fn into_parts(
        self,
    ) -> (Runner<L>, impl Iterator<Item = TlsSessions<RECEIVE, SEND, PIECE, L::Network>> + use<L, RECEIVE, SEND, PIECE>)
    {
        let Self { runner, buffers, tls, random } = self;
        let sessions = buffers.lanes.iter_mut().zip(runner.slots());
        let sessions = sessions.map(move |(memory, slot)| TlsSessions::new(memory, slot, tls, random));
        (runner, sessions)
    }
}

impl<L: Layout, const RECEIVE: usize, const SEND: usize, const PIECE: usize> fmt::Debug
    for TlsRunner<L, RECEIVE, SEND, PIECE>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsRunner").field("runner", &self.runner).finish_non_exhaustive()
    }
}

/// Runs the sessions of one socket, one after the other: see [`TlsRunner::split`].
#[must_use = "without it no connection of its socket is encrypted, and so none is made"]
pub struct TlsSessions<const RECEIVE: usize, const SEND: usize, const PIECE: usize, N: Network = Stack<'static>> {
    mailbox: &'static Mailbox<Socket<N>>,
    receive: &'static mut [u8; RECEIVE],
    send: &'static mut [u8; SEND],
    tls: &'static TlsConfig,
    random: Random,
}

impl<const RECEIVE: usize, const SEND: usize, const PIECE: usize, N: Network> TlsSessions<RECEIVE, SEND, PIECE, N> {
    fn new(
        memory: &'static mut LaneMemory<RECEIVE, SEND, PIECE>,
        slot: &'static Slot<N>,
        tls: &'static TlsConfig,
        random: Random,
    ) -> Self {
        let LaneMemory { receive, send, incoming, outgoing } = memory;
        let mailbox = slot.mailbox();
        mailbox.set_buffers(incoming, outgoing);
        Self { mailbox, receive, send, tls, random }
    }

    /// Runs the sessions.
    pub async fn run(self) -> ! {
        tls::run(self.mailbox, self.tls, self.random, self.receive, self.send).await
    }
}

impl<const RECEIVE: usize, const SEND: usize, const PIECE: usize, N: Network> fmt::Debug
    for TlsSessions<RECEIVE, SEND, PIECE, N>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSessions").field("mailbox", self.mailbox).finish_non_exhaustive()
    }
}
