//! Runs a scenario on a deployment.

use crate::deployment::Deployment;
use crate::events::Watched;
use crate::file::{Action, Scenario, Step};
use crate::matching::Names;
use alloc::collections::BTreeMap;
use bson::{Bson, Document};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::ServerType;
use poolhouse_smol::poolhouse_driver::EventKinds;
use poolhouse_smol::{
    Client, ClientOptions, ClientSession, CommandOptions, Cursor, CursorOptions, Error, SessionCursor,
};
use smol::future::FutureExt;

/// The connections to the primary of each client when its scenario begins.
const CONNECTIONS: usize = 3;

/// Time limit of a scenario.
const LIMIT: Duration = Duration::from_secs(120);

struct Run<'a> {
    deployment: &'a Deployment<'a>,
    clients: BTreeMap<String, Watched>,
    sessions: BTreeMap<String, ClientSession>,
    names: Names,
}

/// The result of a step: what its pattern is compared with.
type Outcome = Result<Option<Bson>, Error>;

pub(crate) fn scenario(scenario: &Scenario, deployment: &Deployment<'_>) -> Result<(), String> {
    limited(run(scenario, deployment))
}

/// Runs the commands of the guide on a set.
pub(crate) fn cookbook(deployment: &Deployment<'_>) -> Result<(), String> {
    limited(async {
        let client = client(&deployment.uri(&Document::new()))?;
        crate::cookbook::all(&client).await.map_err(|error| error.to_string())?;
        client.close().await;
        Ok(())
    })
}

fn limited(work: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let limit = async {
        smol::Timer::after(LIMIT).await;
        Err("the scenario exceeded its time limit".to_owned())
    };
    smol::block_on(work.or(limit))
}

async fn run(scenario: &Scenario, deployment: &Deployment<'_>) -> Result<(), String> {
    let mut names = Names::default();
    names.set("primary", deployment.primary()?.to_string());
    let mut clients = BTreeMap::new();
    for (name, options) in &scenario.clients {
        let client = client(&deployment.uri(options))?;
        known(&client, deployment).await?;
        let subscription = client.subscribe_to(EventKinds::COMMANDS);
        clients.insert(name.clone(), Watched::new(client, subscription));
    }
    let mut run = Run { deployment, clients, sessions: BTreeMap::new(), names };
    for (index, step) in scenario.steps.iter().enumerate() {
        run.step(step).await.map_err(|error| format!("step {index}: {error}"))?;
    }
    run.sessions.clear();
    for watched in run.clients.values() {
        // It waits until dropped transactions have ended.
        watched.client.close().await;
    }
    for (name, expected) in &scenario.events {
        let watched = run.clients.get_mut(name).ok_or_else(|| format!("no client {name}"))?;
        watched.check(expected, &mut run.names)?;
    }
    match &scenario.outcome {
        Some(outcome) => same_documents(outcome, deployment.documents()?),
        None => Ok(()),
    }
}

/// Options that have no effect are errors.
fn client(uri: &str) -> Result<Client, String> {
    let options = ClientOptions::parse(uri).map_err(|error| format!("{uri}: {error}"))?;
    if let Some(warning) = options.warnings.first() {
        return Err(format!("{uri}: {warning}"));
    }
    Client::with_options(options).map_err(|error| error.to_string())
}

/// Waits until the client knows all servers and has connections to the primary: the short time limits of steps do
/// not include their handshakes.
async fn known(client: &Client, deployment: &Deployment<'_>) -> Result<(), String> {
    let count = deployment.addresses()?.len();
    Deployment::eventually("the client knows all servers", || {
        let servers = client.servers();
        servers.len() == count && servers.iter().all(|server| server.server_type != ServerType::Unknown)
    })
    .await?;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        held.push(client.check_out_timeout(None).await.map_err(|error| error.to_string())?);
    }
    Ok(())
}

fn same_documents(expected: &[Bson], found: Vec<Bson>) -> Result<(), String> {
    let sorted = |documents: &[Bson]| {
        let mut texts: Vec<_> = documents.iter().map(ToString::to_string).collect();
        texts.sort();
        texts
    };
    let (expected, found) = (sorted(expected), sorted(&found));
    if expected == found { Ok(()) } else { Err(format!("the collection has {found:?}, expected {expected:?}")) }
}

impl Run<'_> {
    async fn step(&mut self, step: &Step) -> Result<(), String> {
        let outcome = self.act(step).await?;
        for watched in self.clients.values_mut() {
            watched.drain()?;
        }
        match (outcome, &step.error) {
            (Ok(value), None) => match &step.expect {
                Some(pattern) => self.names.check(pattern, value.as_ref()),
                None => Ok(()),
            },
            (Ok(value), Some(_)) => Err(format!("it succeeded: {value:?}")),
            (Err(error), None) => Err(format!("it failed: {error:?}")),
            (Err(error), Some(fault)) => fault.check(&error),
        }
    }

    /// Performs a step. The outer error is a fault of the scenario or of a number that it expects.
    async fn act(&mut self, step: &Step) -> Result<Outcome, String> {
        let watched = self.clients.get(&step.client).ok_or_else(|| format!("no client {}", step.client))?;
        let client = watched.client.clone();
        Ok(match &step.action {
            Action::FailPoint { data, times } => done(self.deployment.set_fail_point(data, *times)?),
            Action::Run { command, session: None } => client.run_command("db", command.clone()).await.map(reply),
            Action::Run { command, session: Some(name) } => {
                session(&mut self.sessions, name)?.run_command("db", command.clone()).await.map(reply)
            }
            Action::Read { command, session: in_session, further, count } => {
                let (command, further, options) = (command.clone(), further.clone(), CommandOptions::new());
                let read = match in_session {
                    None => match client.run_cursor_command("db", command, options, further).await {
                        Ok(cursor) => rest(cursor).await,
                        Err(error) => Err(error),
                    },
                    Some(name) => {
                        let session = session(&mut self.sessions, name)?;
                        read_in(session, command, further).await
                    }
                };
                match read {
                    Ok(read) if read != *count => return Err(format!("{read} documents, expected {count}")),
                    read => read.map(|_| None),
                }
            }
            Action::StartSession(name, options) => {
                self.sessions.insert(name.clone(), client.start_session(*options));
                Ok(None)
            }
            Action::DropSession(name) => done(self.sessions.remove(name).map(drop).ok_or("no such session")?),
            Action::StartTransaction(name, options) => {
                session(&mut self.sessions, name)?.start_transaction(options.clone()).map(|()| None)
            }
            Action::Commit(name) => session(&mut self.sessions, name)?.commit_transaction().await.map(|()| None),
            Action::Abort(name) => session(&mut self.sessions, name)?.abort_transaction().await.map(|()| None),
            Action::WithTransaction { session: name, transaction, commands, works } => {
                let mut begun = 0;
                let work = async |session: &mut ClientSession| {
                    begun += 1;
                    for command in commands {
                        session.run_command("db", command.clone()).await?;
                    }
                    Ok::<_, Error>(())
                };
                let session = session(&mut self.sessions, name)?;
                let outcome = session.with_transaction(transaction.clone(), work).await;
                if begun != *works {
                    return Err(format!("the work was begun {begun} times, expected {works}: {outcome:?}"));
                }
                outcome.map(|()| None)
            }
            Action::Close => {
                client.close().await;
                Ok(None)
            }
        })
    }
}

fn done((): ()) -> Outcome {
    Ok(None)
}

fn reply(reply: Document) -> Option<Bson> {
    Some(reply.into())
}

fn session<'a>(sessions: &'a mut BTreeMap<String, ClientSession>, name: &str) -> Result<&'a mut ClientSession, String> {
    sessions.get_mut(name).ok_or_else(|| format!("no session {name}"))
}

/// Reads a cursor until its end, and returns the number of documents.
async fn rest(mut cursor: Cursor) -> Result<i64, Error> {
    let mut count = 0;
    while cursor.next_raw().await?.is_some() {
        count += 1;
    }
    Ok(count)
}

async fn read_in(session: &mut ClientSession, command: Document, further: CursorOptions) -> Result<i64, Error> {
    let options = CommandOptions::new();
    let mut cursor: SessionCursor = session.run_cursor_command("db", command, options, further).await?;
    let mut count = 0;
    while cursor.next_raw(session).await?.is_some() {
        count += 1;
    }
    Ok(count)
}
