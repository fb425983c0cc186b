//! TLS: the authority of the command line, the host's clock, and a task for the sessions of each
//! socket.

use base64ct::{Base64, Encoding};
use embassy_net::Stack;
use poolhouse_board::host;
use poolhouse_embassy::{
    Buffers, Client, Config, Layout, MaxFragment, Resources, SetupError, TlsBuffers, TlsConfig, TlsOptions, TlsRunner,
    TlsSessions,
};
use static_cell::{ConstStaticCell, StaticCell};

use crate::plan::Plan;
use crate::{Demo, Printer, fail};

/// Servers are requested to limit records to 4 KiB.
const FRAGMENT: MaxFragment = MaxFragment::Bytes4096;
const RECEIVE: usize = FRAGMENT.bytes() + 256;
const SEND: usize = 1152;
const PIECE: usize = 512;

/// The maximum size of an authority's certificate, in bytes.
const AUTHORITY_BYTES: usize = 1024;

pub(crate) type Runner = TlsRunner<Demo, RECEIVE, SEND, PIECE>;

#[embassy_executor::task(pool_size = Demo::SOCKETS)]
pub(crate) async fn sessions(sessions: TlsSessions<RECEIVE, SEND, PIECE>) -> ! {
    sessions.run().await
}

/// Starts a client that encrypts every connection.
pub(crate) fn start(
    resources: &'static mut Resources<Demo>,
    buffers: &'static mut Buffers<Demo>,
    network: Stack<'static>,
    config: &'static Config,
    plan: &Plan,
) -> Result<(Client<Demo>, Runner), SetupError> {
    static TLS_BUFFERS: ConstStaticCell<TlsBuffers<Demo, RECEIVE, SEND, PIECE>> =
        ConstStaticCell::new(TlsBuffers::new());
    static TLS: StaticCell<TlsConfig> = StaticCell::new();
    let Some(authorities) = authority(plan.authority) else { fail(&"ca is not in base64") };
    let tls = match TlsOptions::new(authorities, || host::unix_time().as_secs()).max_fragment(FRAGMENT).validate() {
        Ok(tls) => TLS.init(tls),
        Err(error) => fail(&error),
    };
    Client::with_tls(resources, buffers, TLS_BUFFERS.take(), network, config, tls, Printer)
}

/// Decodes the certificate. A program with a fixed authority stores it in flash: `include_bytes!`.
fn authority(text: &str) -> Option<&'static [&'static [u8]]> {
    static BYTES: ConstStaticCell<[u8; AUTHORITY_BYTES]> = ConstStaticCell::new([0; AUTHORITY_BYTES]);
    static AUTHORITIES: StaticCell<[&[u8]; 1]> = StaticCell::new();
    let bytes = Base64::decode(text, BYTES.take()).ok()?;
    Some(AUTHORITIES.init([bytes]))
}
