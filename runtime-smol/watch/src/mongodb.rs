//! A MongoDB client, its load of pings, and its fake replica set.

use alloc::sync::Arc;
use core::time::Duration;
use std::sync::Mutex;
use std::time::Instant;

use poolhouse_smol::bson::doc;
use poolhouse_smol::poolhouse_uri::{ConnectionString, UriOptions};
use poolhouse_smol::{
    Client, ClientOptions, Error, Event, EventRef, OwnedSdamEvent, PoolEvent, ServerStatus, ServerType,
};
use smol::{Task, Timer};

use crate::command::Command;
use crate::demo::Demo;
use crate::load::{Tally, with};
use crate::program::{Watched, record};
use crate::state::{DemoState, Health, Kind, MONGODB, Server, State, Words};

/// The number of tasks, unless the user sets it.
const TASKS: u32 = 64;
/// The pause of a task after a failure.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct MongoDb {
    client: Client,
    demo: Option<Demo>,
    tasks: u32,
}

impl MongoDb {
    /// - `uri`: `None` = a fake replica set, which fails over with this period, if any.
    ///
    /// # Errors
    /// The message for the user.
    pub(crate) async fn open(
        uri: Option<&str>,
        failovers: Option<Duration>,
        tasks: Option<u32>,
    ) -> Result<Self, String> {
        let demo = match uri {
            Some(_) => None,
            None => Some(Demo::start(failovers).map_err(|error| format!("fake set: {error}"))?),
        };
        let uri = uri.map(str::to_owned).or_else(|| demo.as_ref().map(Demo::uri)).unwrap_or_default();
        let parsed = ConnectionString::parse(&uri).map_err(|error| error.to_string())?;
        let client = Client::new_with(&uri, |options| completed(options, parsed.options())).await;
        Ok(Self { client: client.map_err(|error| error.to_string())?, demo, tasks: tasks.unwrap_or(TASKS) })
    }
}

impl Watched for MongoDb {
    fn words(&self) -> &'static Words {
        &MONGODB
    }

    fn introduction(&self) -> Vec<String> {
        let fakes = "A fake replica set of three members in this process; \"--help\" lists the options";
        let lines = "Each server: address, type, connections in use/idle/being established, waiting tasks";
        self.demo.iter().map(|_| fakes).chain([lines]).map(str::to_owned).collect()
    }

    /// Warnings about options of the connection string that are ignored, without effect or dangerous.
    fn warnings(&self) -> Vec<String> {
        self.client.warnings().iter().map(|warning| format!("warning: {warning}")).collect()
    }

    fn start(&self, started: Instant, state: &Arc<Mutex<State>>, tally: &Arc<Mutex<Tally>>) -> Vec<Task<()>> {
        // The events of the topology and those of whole pools.
        let events = self.client.subscribe_where(|event| match event {
            EventRef::Sdam(_) => true,
            EventRef::Pool(event) => matches!(event, PoolEvent::PoolCleared { .. }),
            EventRef::Heartbeat(_) | EventRef::Mux(_) | EventRef::Cluster(_) | EventRef::Command(_) | _ => false,
        });
        let events = record(events, started, Arc::clone(state), |event, _| describe(event));
        let load = (0..self.tasks).map(|_| smol::spawn(work(self.client.clone(), Arc::clone(tally))));
        load.chain([smol::spawn(events)]).collect()
    }

    fn servers(&self) -> Vec<Server> {
        let connections_max = self.client.pool_options().max_pool_size;
        self.client.servers().into_iter().map(|status| server(status, connections_max)).collect()
    }

    fn demo(&self) -> Option<DemoState> {
        self.demo.as_ref().map(Demo::state)
    }

    fn handle_timeout(&mut self, now: Instant) -> Option<String> {
        self.demo.as_mut()?.handle_timeout(now)
    }

    fn obey(&mut self, now: Instant, command: Command) -> Option<String> {
        let demo = self.demo.as_mut()?;
        demo.stop_automatic();
        Some(if command == Command::Freeze { demo.freeze() } else { demo.fail_over(now) })
    }

    fn shortcoming(&self, tally: &Tally, _: &State) -> Option<&'static str> {
        (!tally.last_succeeded).then_some("the last operation failed")
    }

    async fn close(&self) {
        self.client.close().await;
    }
}

/// The options of a connection string, with defaults of this program for those that it does not
/// set. A TXT record has none of these options.
fn completed(mut options: ClientOptions, given: &UriOptions) -> ClientOptions {
    if given.app_name.is_none() {
        options.app_name = Some("poolhouse-watch".to_owned());
    }
    if given.max_pool_size.is_none() {
        options.pool.max_pool_size = options.pool.min_pool_size.max(10);
    }
    if given.timeout.is_none() {
        options.timeout = Some(Duration::from_secs(5));
    }
    if given.heartbeat_frequency.is_none() {
        options.monitor.heartbeat_frequency = Duration::from_secs(1);
    }
    options
}

/// - `connections_max`: the limit of its connections; 0 = none.
fn server(status: ServerStatus, connections_max: u32) -> Server {
    let counts = status.pool.counts;
    Server {
        address: status.address,
        kind: status.server_type.name().to_owned(),
        health: if status.server_type == ServerType::Unknown {
            Health::Out
        } else if matches!(status.server_type, ServerType::RsPrimary | ServerType::Standalone | ServerType::Mongos) {
            Health::Good
        } else {
            Health::Plain
        },
        detail: status.round_trip_average.map(|time| format!("{:.2} ms", time.as_secs_f64() * 1e3)),
        counts: vec![counts.in_use, counts.available, counts.pending, counts.waiting],
        bar_max: connections_max,
    }
}

/// Returns the kind and the text of an event; `None` for one that the screen shows elsewhere.
fn describe(event: &Event) -> Option<(Kind, String)> {
    let event = match event {
        Event::Pool(event) => return Some((Kind::Other, event.to_string())),
        Event::Sdam(event) => &**event,
        Event::Heartbeat(_) | Event::Mux(_) | Event::Cluster(_) | Event::Command(_) | _ => return None,
    };
    if let OwnedSdamEvent::ServerDescriptionChanged { address, previous, new, .. } = event {
        let (before, after) = (previous.get().server_type(), new.get().server_type());
        let error = new.get().error().map_or(String::new(), |error| format!(": {error}"));
        let kind = if !error.is_empty() {
            Kind::Failure
        } else if after == ServerType::RsPrimary {
            Kind::Primary
        } else {
            Kind::Other
        };
        let text = format!("{address} was {}, is {}{error}", before.name(), after.name());
        return (before != after).then_some((kind, text));
    }
    if let OwnedSdamEvent::ServerClosed { address, .. } = event {
        return Some((Kind::Other, format!("{address} is removed")));
    }
    None
}

/// Pings the primary repeatedly. A transient failure is retried once, as an application would.
async fn work(client: Client, tally: Arc<Mutex<Tally>>) {
    loop {
        let started = Instant::now();
        let mut outcome = ping(&client).await;
        if outcome.as_ref().is_err_and(|error| error.is_retryable() || error.is_transient()) {
            with(&tally, |tally| tally.totals.other += 1);
            outcome = ping(&client).await;
        }
        let failed = outcome.is_err();
        with(&tally, |tally| tally.add(outcome.map_err(|error| error.to_string()), started.elapsed()));
        if failed {
            Timer::after(PAUSE).await;
        }
    }
}

async fn ping(client: &Client) -> Result<(), Error> {
    client.check_out().await?.run_command("admin", doc! { "ping": 1 }).await.map(drop)
}
