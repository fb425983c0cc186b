//! The memory of sessions, and who runs them.

use core::fmt;
use core::future::pending;
use embassy_futures::join::join;
use embassy_net::Stack;

use super::lane::{self, Post};
use super::options::TlsConfig;
use crate::layout::{Each, Zero};
use crate::run::{HubRunner, ServerRunner};
use crate::slot::Slot;
use crate::{Buffers, Client, Config, Layout, Random, Resources, Runner, SetupError};

/// The bytes of a client's TLS, beside its [`Buffers`]: they belong into a static, which begins as zeros: `ConstStaticCell<TlsBuffers<Sizes<1, 4, 8>>>`.
///
/// - `RECEIVE`: the largest record that servers send, encrypted. 16,640 holds every one that there can be; [`TlsOptions::max_fragment`](crate::TlsOptions::max_fragment)
///   and 256 are enough for servers that heed it. What is larger ends the connection. At least 768.
/// - `SEND`: the largest record that is sent, encrypted: 128 bytes more than what is in it. What is longer is sent in several. A client's certificate must fit, with 128 bytes. At
///   least 640.
/// - `PIECE`: bytes that pass between a task and the session at a time, in either direction.
///
/// It takes `RECEIVE + SEND + 2 * PIECE` bytes for each of the [`Layout::SOCKETS`]. The future of each session takes some 3 KiB besides.
pub struct TlsBuffers<L: Layout, const RECEIVE: usize = 16640, const SEND: usize = 1152, const PIECE: usize = 512> {
    lanes: L::Each<LaneMemory<RECEIVE, SEND, PIECE>>,
}

impl<L: Layout, const RECEIVE: usize, const SEND: usize, const PIECE: usize> TlsBuffers<L, RECEIVE, SEND, PIECE> {
    /// Zeros. Sizes that are too small fail the build.
    #[must_use]
    pub const fn new() -> Self {
        const {
            assert!(RECEIVE >= RECEIVE_MIN, "RECEIVE must be at least 768");
            assert!(RECEIVE <= RECEIVE_MAX, "no record is larger than 16640 bytes");
            assert!(SEND >= SEND_MIN, "SEND must be at least 640");
            assert!(SEND <= RECEIVE_MAX, "no record is larger than 16640 bytes");
            assert!(PIECE > 0, "PIECE must be at least 1");
        }
        Self { lanes: <L::Each<_> as Each<_>>::ZERO }
    }
}

/// The server's hello and its signature of the handshake.
const RECEIVE_MIN: usize = 512 + 256;
const RECEIVE_MAX: usize = 16 * 1024 + 256;
/// The client's hello: some 240 bytes and the server's name, of 253 bytes at most.
const SEND_MIN: usize = 640;
/// What a client's certificate is sent in.
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
        // Bytes may be secrets: only the shape is shown.
        write!(f, "TlsBuffers({} bytes)", size_of::<Self>())
    }
}

/// The memory of one lane.
pub(super) struct LaneMemory<const RECEIVE: usize, const SEND: usize, const PIECE: usize> {
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
        // Bytes may be secrets: only the shape is shown.
        write!(f, "LaneMemory<{RECEIVE}, {SEND}, {PIECE}>")
    }
}

impl<L: Layout> Client<L> {
    /// [`Client::with_events`](Client::with_events) with TLS: no connection is made without.
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
    ///     // `client` goes to the tasks that have something to do, and this is a task of its own.
    ///     # let _ = client;
    ///     runner.run().await
    /// }
    /// ```
    ///
    /// - `tls`: how connections are encrypted. [`Options::random`](crate::Options::random) must be there.
    ///
    /// # Errors
    ///
    /// [`SetupError`]: also for random bytes that are not there, certificates that cannot be read, and memory that is too small for what was asked.
    pub fn with_tls<const RECEIVE: usize, const SEND: usize, const PIECE: usize>(
        resources: &'static mut Resources<L>,
        buffers: &'static mut Buffers<L>,
        tls_buffers: &'static mut TlsBuffers<L, RECEIVE, SEND, PIECE>,
        stack: Stack<'static>,
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
        let (client, runner) = Self::build(resources, buffers, stack, config, events, true)?;
        Ok((client, TlsRunner { runner, buffers: tls_buffers, tls, random }))
    }
}

/// The [`Runner`] of a client with TLS. Sessions live in it.
#[must_use = "without it a client is closed"]
pub struct TlsRunner<L: Layout, const RECEIVE: usize, const SEND: usize, const PIECE: usize> {
    runner: Runner<L>,
    buffers: &'static mut TlsBuffers<L, RECEIVE, SEND, PIECE>,
    tls: &'static TlsConfig,
    random: Random,
}

impl<L: Layout, const RECEIVE: usize, const SEND: usize, const PIECE: usize> TlsRunner<L, RECEIVE, SEND, PIECE> {
    /// What [`Runner::run`] does, and all encryption.
    ///
    /// One task that does all is simplest where there is one server. With more of them it takes a large stack to begin: see [`TlsRunner::split`].
    pub async fn run(self) -> ! {
        let Self { runner, buffers, tls, random } = self;
        let mut slots = runner.slots().iter();
        let sessions = buffers.lanes.join_all(move |memory| {
            let session = slots.next().map(|slot| TlsSessions::new(memory, slot, tls, random));
            async move {
                if let Some(session) = session {
                    session.run().await;
                }
            }
        });
        join(runner.run(), sessions).await;
        pending().await
    }

    /// The same in several tasks: see [`Runner::split`]; and one for each of the [`Layout::SOCKETS`], which the iterator gives.
    pub fn split(
        self,
    ) -> (
        HubRunner<L>,
        ServerRunner<L>,
        impl Iterator<Item = TlsSessions<RECEIVE, SEND, PIECE>> + use<L, RECEIVE, SEND, PIECE>,
    ) {
        let Self { runner, buffers, tls, random } = self;
        let sessions = buffers.lanes.each().zip(runner.slots().iter());
        let sessions = sessions.map(move |(memory, slot)| TlsSessions::new(memory, slot, tls, random));
        let (hub, server) = runner.split();
        (hub, server, sessions)
    }
}

impl<L: Layout, const RECEIVE: usize, const SEND: usize, const PIECE: usize> fmt::Debug
    for TlsRunner<L, RECEIVE, SEND, PIECE>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsRunner").field("runner", &self.runner).finish_non_exhaustive()
    }
}

/// The sessions of one socket, one after the other: see [`TlsRunner::split`].
#[must_use = "without it no connection of its socket is encrypted, and so none is made"]
pub struct TlsSessions<const RECEIVE: usize, const SEND: usize, const PIECE: usize> {
    post: &'static Post,
    receive: &'static mut [u8; RECEIVE],
    send: &'static mut [u8; SEND],
    tls: &'static TlsConfig,
    random: Random,
}

impl<const RECEIVE: usize, const SEND: usize, const PIECE: usize> TlsSessions<RECEIVE, SEND, PIECE> {
    fn new(
        memory: &'static mut LaneMemory<RECEIVE, SEND, PIECE>,
        slot: &'static Slot,
        tls: &'static TlsConfig,
        random: Random,
    ) -> Self {
        let LaneMemory { receive, send, incoming, outgoing } = memory;
        let post = slot.post();
        post.furnish(incoming, outgoing);
        Self { post, receive, send, tls, random }
    }

    /// Encrypts.
    pub async fn run(self) -> ! {
        lane::run(self.post, self.tls, self.random, self.receive, self.send).await
    }
}

impl<const RECEIVE: usize, const SEND: usize, const PIECE: usize> fmt::Debug for TlsSessions<RECEIVE, SEND, PIECE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSessions").field("post", self.post).finish_non_exhaustive()
    }
}
