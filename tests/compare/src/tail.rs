//! Effects that a mean hides: a burst on an empty pool, cancelled check-outs, the first ping of a
//! client, and fairness. Poolhouse on smol and the official driver on tokio, one thread each, with
//! one server in a separate process.

mod abandoned;
mod burst;
mod driver;
mod fair;
mod ours;

use crate::clients::median_ms;
use crate::process::{Kind, Server, worker};
use crate::report::{Section, Table};
use crate::settings::Settings;
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use mongodb::bson::{Document, doc};
use poolhouse_fake::mongo::BlockingClient;
use smol::channel::{Receiver, Sender, bounded};
use tokio::runtime::Runtime;

/// Time limit of a wait; far more than it needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Notifies when the last of many tasks has completed. A task that joined them one by one would be
/// woken as often as they are, and would distort the measurement.
#[derive(Clone, Debug)]
struct LastOf {
    left: Arc<AtomicUsize>,
    tell: Sender<()>,
}

impl LastOf {
    fn new(tasks: usize) -> (Self, Receiver<()>) {
        let (tell, reported) = bounded(1);
        (Self { left: Arc::new(AtomicUsize::new(tasks)), tell }, reported)
    }

    fn is_done(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.tell.try_send(()).expect("the channel has capacity for one message");
        }
    }
}

/// Runs the whole section.
pub(crate) fn run(settings: &Settings) -> Section {
    let server = Server::start(Kind::Mongo);
    worker("tail", 1, Some(server.address), settings)
}

/// Runs a part of the section in a separate process.
pub(crate) fn part(name: &str, _: usize, server: Option<SocketAddr>, settings: &Settings) -> Option<Section> {
    if name != "tail" {
        return None;
    }
    let server = server.expect("an address");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut section = Section::new("tail");
    burst::run(&runtime, server, settings, &mut section);
    abandoned::run(&runtime, server, settings, &mut section);
    cold(&runtime, server, settings, &mut section);
    fair::run(&runtime, server, settings, &mut section);
    Some(section)
}

/// Measures the time from the creation of a client to the end of its first ping.
fn cold(runtime: &Runtime, server: SocketAddr, settings: &Settings, section: &mut Section) {
    let [mut our, mut their] = [Vec::new(), Vec::new()];
    for _ in 0..settings.of(2, 41) {
        our.push(smol::block_on(ours::cold(server)));
        their.push(runtime.block_on(driver::cold(server)));
    }
    let mut table = Table::new("a new client's first ping, handshakes at once", &["ms", "of the driver"]);
    let (our, their) = (median_ms(&our), median_ms(&their));
    table.row("poolhouse-smol", &[our, our / their]);
    table.row("mongodb on tokio", &[their, 1.0]);
    section.tables.push(table);
}

/// Configures a fail point of the fake server until this is dropped.
struct FailPoint {
    client: BlockingClient,
}

impl FailPoint {
    /// Delays the replies to these commands by this time; `mode` as in `configureFailPoint`.
    fn slow(server: SocketAddr, mode: impl Into<mongodb::bson::Bson>, commands: &[&str], by: Duration) -> Self {
        let mut point = Self { client: BlockingClient::connect(server, PATIENCE).expect("a server that listens") };
        let ms = i64::try_from(by.as_millis()).expect("not long");
        let data = doc! { "failCommands": commands.to_vec(), "blockConnection": true, "blockTimeMS": ms };
        point.set(doc! { "configureFailPoint": "failCommand", "mode": mode.into(), "data": data });
        point
    }

    fn set(&mut self, command: Document) {
        let reply = self.client.run("admin", command).expect("a server that answers");
        assert_eq!(reply.get("ok").and_then(mongodb::bson::Bson::as_f64), Some(1.0), "{reply}");
    }
}

impl Drop for FailPoint {
    fn drop(&mut self) {
        self.set(doc! { "configureFailPoint": "failCommand", "mode": "off" });
    }
}
