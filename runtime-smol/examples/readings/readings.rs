//! The readings in the database. This module has all statements of the program.

use core::error::Error;
use core::time::Duration;
use poolhouse_smol::mux::cql::{Consistency, Parameters};
use poolhouse_smol::mux::{RequestOptions, Session, SessionOptions, Statement};
use serde::{Deserialize, Serialize};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// How long the nodes may take to have the same schema.
const AGREEMENT: Duration = Duration::from_secs(30);
/// A majority of the replicas of the local data centre: a read finds what was written before.
const QUORUM: Parameters<'static> = Parameters::new(Consistency::LocalQuorum);

/// A row of the table. The names of the fields are those of the columns.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reading {
    pub(crate) sensor: String,
    /// Since the Unix epoch.
    #[serde(rename = "at")]
    pub(crate) at_ms: i64,
    pub(crate) celsius: f64,
}

/// A session and its prepared statements. Cheap to clone, for each task.
#[derive(Clone)]
pub(crate) struct Readings {
    session: Session,
    insert: Statement,
    latest: Statement,
    all: Statement,
}

impl Readings {
    /// Connects, creates the keyspace and the table if they are missing, and prepares the statements.
    pub(crate) async fn open(contact_points: Vec<String>, data_center: String) -> Result<Self, Failure> {
        // A quotation mark in a string is doubled.
        let quoted = data_center.replace('\'', "''");
        let keyspace = format!(
            "CREATE KEYSPACE IF NOT EXISTS sensors \
             WITH replication = {{'class': 'NetworkTopologyStrategy', '{quoted}': 1}}"
        );
        let table = "CREATE TABLE IF NOT EXISTS sensors.readings \
                     (sensor text, at timestamp, celsius double, PRIMARY KEY (sensor, at)) \
                     WITH CLUSTERING ORDER BY (at DESC)";
        let options = SessionOptions::contact_points(contact_points).local_data_center(data_center);
        let session = Session::new(options)?;
        for statement in [&keyspace, table] {
            session.query(statement, Consistency::LocalOne).await?;
            if !session.schema_agreement(AGREEMENT).await? {
                return Err("the nodes do not agree on the schema".into());
            }
        }
        Ok(Self {
            insert: session.prepare("INSERT INTO sensors.readings (sensor, at, celsius) VALUES (?, ?, ?)").await?,
            latest: session.prepare("SELECT * FROM sensors.readings WHERE sensor = ? LIMIT 1").await?,
            all: session.prepare("SELECT * FROM sensors.readings WHERE sensor = ?").await?,
            session,
        })
    }

    /// Returns when a majority of the replicas has the reading. The values contain the partition key, so
    /// the request goes to a node that has the partition.
    pub(crate) async fn insert(&self, reading: &Reading) -> Result<(), Failure> {
        let bound = self.insert.bind(reading)?;
        // Inserted twice, it is the same row: it is sent again if its connection is lost.
        let options = RequestOptions { idempotent: true, ..RequestOptions::default() };
        self.session.execute(&self.insert, QUORUM.values(&bound.values()), options).await?;
        Ok(())
    }

    pub(crate) async fn latest(&self, sensor: &str) -> Result<Option<Reading>, Failure> {
        let bound = self.latest.bind(&(sensor,))?;
        let options = RequestOptions { idempotent: true, ..RequestOptions::default() };
        let reply = self.session.execute(&self.latest, QUORUM.values(&bound.values()), options).await?;
        Ok(reply.rows_as()?.pop())
    }

    /// Calls `visit` with the readings of a sensor, the latest first. Holds one page at a time.
    pub(crate) async fn for_each(&self, sensor: &str, mut visit: impl FnMut(Reading)) -> Result<(), Failure> {
        let bound = self.all.bind(&(sensor,))?;
        let parameters = Parameters { page_size: Some(100), ..QUORUM };
        let mut pages = self.session.pages(&self.all, parameters.values(&bound.values()), None);
        while let Some(page) = pages.next_page().await {
            page?.rows_as()?.into_iter().for_each(&mut visit);
        }
        Ok(())
    }

    pub(crate) async fn close(&self) {
        self.session.close().await;
    }
}
