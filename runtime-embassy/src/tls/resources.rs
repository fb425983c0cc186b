//! The memory of sessions, and who runs them.

use core::fmt;
use core::future::pending;
use embassy_futures::join::join;
use embassy_net::Stack;

use super::lane::{self, Post};
use super::options::TlsConfig;
use crate::layout::{Each, Vacant};
use crate::{Client, Config, Layout, Random, Resources, Runner, SetupError};

/// All memory of a client's TLS, beside its [`Resources`]: `StaticCell<TlsResources<Sizes<1, 4, 8>>>`.
///
/// - `RECEIVE`: the largest record that servers send, encrypted. 16,640 holds every one that there can be; [`TlsOptions::max_fragment`](crate::TlsOptions::max_fragment)
///   and 256 are enough for servers that heed it. What is larger ends the connection. At least 768.
/// - `SEND`: the largest record that is sent, encrypted: 128 bytes more than what is in it. What is longer is sent in several. A client's certificate must fit, with 128 bytes. At
///   least 640.
/// - `PIECE`: bytes that pass between a task and the runner at a time, in either direction.
///
/// It takes `RECEIVE + SEND + 2 * PIECE` bytes for each of the [`Layout::SOCKETS`] and some 200 more, all of them zero: no flash. The future of the runner takes some 3 KiB for each
/// besides.
pub struct TlsResources<L: Layout, const RECEIVE: usize = 16640, const SEND: usize = 1152, const PIECE: usize = 512> {
    lanes: L::Each<LaneMemory<RECEIVE, SEND, PIECE>>,
}

impl<L: Layout, const RECEIVE: usize, const SEND: usize, const PIECE: usize> TlsResources<L, RECEIVE, SEND, PIECE> {
    /// Memory that no client uses yet. Sizes that are too small fail the build.
    #[must_use]
    pub const fn new() -> Self {
        const {
            assert!(RECEIVE >= RECEIVE_MIN, "RECEIVE must be at least 768");
            assert!(RECEIVE <= RECEIVE_MAX, "no record is larger than 16640 bytes");
            assert!(SEND >= SEND_MIN, "SEND must be at least 640");
            assert!(SEND <= RECEIVE_MAX, "no record is larger than 16640 bytes");
            assert!(PIECE > 0, "PIECE must be at least 1");
        }
        Self { lanes: <L::Each<_> as Each<_>>::VACANT }
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
    for TlsResources<L, RECEIVE, SEND, PIECE>
{
    fn default() -> Self {
        Self::new()
    }
}

impl<L: Layout, const RECEIVE: usize, const SEND: usize, const PIECE: usize> fmt::Debug
    for TlsResources<L, RECEIVE, SEND, PIECE>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsResources").field("bytes", &size_of::<Self>()).finish_non_exhaustive()
    }
}

/// The memory of one lane.
pub(super) struct LaneMemory<const RECEIVE: usize, const SEND: usize, const PIECE: usize> {
    post: Post,
    receive: [u8; RECEIVE],
    send: [u8; SEND],
    incoming: [u8; PIECE],
    outgoing: [u8; PIECE],
}

impl<const RECEIVE: usize, const SEND: usize, const PIECE: usize> Vacant for LaneMemory<RECEIVE, SEND, PIECE> {
    #[allow(clippy::declare_interior_mutable_const, reason = "what an array of them begins as")]
    const VACANT: Self =
        Self { post: Post::VACANT, receive: [0; RECEIVE], send: [0; SEND], incoming: [0; PIECE], outgoing: [0; PIECE] };
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
    /// use poolhouse_embassy::{Client, Config, MaxFragment, Options, Resources, SetupError, Sizes, TlsConfig, TlsOptions, TlsResources};
    ///
    /// type Small = Sizes<1, 4, 8>;
    /// // Records of 2 KiB, and what encryption adds to them.
    /// type SmallTls = TlsResources<Small, { 2048 + 256 }>;
    ///
    /// # const CA: &[u8] = &[];
    /// # fn fill_by_hardware(_bytes: &mut [u8]) {}
    /// # fn seconds_since_1970() -> u64 { 0 }
    /// // const CA: &[u8] = include_bytes!("ca.der");
    /// static CONFIG: Config =
    ///     Options { seeds: &["db.example.com"], random: Some(fill_by_hardware), ..Options::DEFAULT }.build();
    /// static TLS: TlsConfig =
    ///     TlsOptions::new(&[CA], seconds_since_1970).with_max_fragment(MaxFragment::Bytes2048).build();
    ///
    /// async fn run(
    ///     stack: Stack<'static>,
    ///     resources: &'static mut Resources<Small>,
    ///     tls_resources: &'static mut SmallTls,
    /// ) -> Result<(), SetupError> {
    ///     let (client, runner) = Client::with_tls(resources, tls_resources, stack, &CONFIG, &TLS, ())?;
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
        tls_resources: &'static mut TlsResources<L, RECEIVE, SEND, PIECE>,
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
        let (client, runner) = Self::build(resources, stack, config, events, true)?;
        Ok((client, TlsRunner { runner, resources: tls_resources, tls, random }))
    }
}

/// The [`Runner`] of a client with TLS. Sessions live in it.
#[must_use = "without it a client does nothing"]
pub struct TlsRunner<L: Layout, const RECEIVE: usize, const SEND: usize, const PIECE: usize> {
    runner: Runner<L>,
    resources: &'static mut TlsResources<L, RECEIVE, SEND, PIECE>,
    tls: &'static TlsConfig,
    random: Random,
}

impl<L: Layout, const RECEIVE: usize, const SEND: usize, const PIECE: usize> TlsRunner<L, RECEIVE, SEND, PIECE> {
    /// What [`Runner::run`] does, and all encryption.
    pub async fn run(self) -> ! {
        let Self { runner, resources, tls, random } = self;
        let mut slots = runner.slots().iter();
        let lanes = resources.lanes.join_all(move |memory| {
            let LaneMemory { post, receive, send, incoming, outgoing } = memory;
            let post: &'static Post = post;
            post.furnish(incoming, outgoing);
            if let Some(slot) = slots.next() {
                slot.give_lane(post);
            }
            async move {
                lane::run(post, tls, random, receive, send).await;
            }
        });
        join(runner.run(), lanes).await;
        pending().await
    }
}

impl<L: Layout, const RECEIVE: usize, const SEND: usize, const PIECE: usize> fmt::Debug
    for TlsRunner<L, RECEIVE, SEND, PIECE>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsRunner").field("runner", &self.runner).finish_non_exhaustive()
    }
}
