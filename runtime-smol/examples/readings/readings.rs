//! The readings in the database. This module has all statements of the program.

use core::error::Error;
use poolhouse_smol::mux::{Session, SessionOptions, Statement};
use serde::{Deserialize, Serialize};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

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
            // Returns after all nodes have the new schema.
            session.query(statement).send().await?;
        }
        Ok(Self {
            insert: session.prepare("INSERT INTO sensors.readings (sensor, at, celsius) VALUES (?, ?, ?)").await?,
            latest: session.prepare("SELECT * FROM sensors.readings WHERE sensor = ? LIMIT 1").await?,
            all: session.prepare("SELECT * FROM sensors.readings WHERE sensor = ?").await?,
            session,
        })
    }

    /// Returns when a majority of the replicas of the local data centre has the reading. The values contain
    /// the partition key, so the request goes to a node that has the partition.
    pub(crate) async fn insert(&self, reading: &Reading) -> Result<(), Failure> {
        // Inserted twice, it is the same row: it is sent again if its connection is lost.
        self.session.execute(&self.insert, reading).idempotent(true).send().await?;
        Ok(())
    }

    pub(crate) async fn latest(&self, sensor: &str) -> Result<Option<Reading>, Failure> {
        Ok(self.session.execute(&self.latest, &(sensor,)).idempotent(true).send().await?.one()?)
    }

    /// Calls `visit` with the readings of a sensor, the latest first. Holds one page at a time.
    pub(crate) async fn for_each(&self, sensor: &str, mut visit: impl FnMut(Reading)) -> Result<(), Failure> {
        let mut rows = self.session.execute(&self.all, &(sensor,)).page_size(100).rows();
        while let Some(reading) = rows.next_row().await {
            visit(reading?);
        }
        Ok(())
    }

    pub(crate) async fn close(&self) {
        self.session.close().await;
    }
}
