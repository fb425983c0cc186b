//! The records of the server.

use core::net::Ipv4Addr;
use std::collections::HashMap;
use std::path::Path;
use std::{env, fs};

use serde_json::{Map, Value};

use crate::spec::{self, SkipReason};

/// The environment variable with the path of the file of the records that the official tests
/// require.
pub const DNS_RECORDS: &str = "POOLHOUSE_DNS_RECORDS";

/// Records, by their names in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Hosts of services, and their ports.
    pub srv: HashMap<String, Vec<(String, u16)>>,
    /// TXT records, each of several strings.
    pub txt: HashMap<String, Vec<Vec<String>>>,
    /// Addresses.
    pub a: HashMap<String, Vec<Ipv4Addr>>,
    /// Aliases.
    pub cname: HashMap<String, String>,
    /// Time to live of all records, in seconds.
    pub ttl: u32,
}

impl Records {
    /// Returns the records of the file that the environment variable names, else of `dns_records.json` in
    /// the checkout of the specifications.
    ///
    /// # Errors
    /// [`SkipReason`]: there is no such file, or it cannot be read.
    pub fn of_environment() -> Result<Self, SkipReason> {
        let named =
            env::var_os(DNS_RECORDS).filter(|value| !value.is_empty()).map(|path| spec::resolve(Path::new(&path)));
        let in_checkout =
            || spec::roots().ok()?.into_iter().map(|root| root.join("dns_records.json")).find(|path| path.is_file());
        let Some(path) = named.or_else(in_checkout) else {
            return Err(SkipReason::new(format!("{DNS_RECORDS} is not set")));
        };
        let wrong = |error: &dyn core::fmt::Display| SkipReason::new(format!("{}: {error}", path.display()));
        let bytes = fs::read(&path).map_err(|error| wrong(&error))?;
        let file: Value = serde_json::from_slice(&bytes).map_err(|error| wrong(&error))?;
        Self::from_json(&file).map_err(|error| wrong(&error))
    }

    /// Parses
    /// `{"A": {name: address}, "SRV": {name: [{"port", "target"}]}, "TXT": {name: [[string]]}}`.
    ///
    /// # Errors
    /// The part that does not have this form.
    pub fn from_json(file: &Value) -> Result<Self, String> {
        let mut records = Self { ttl: 60, ..Self::default() };
        for (name, address) in section(file, "A") {
            let address = address.as_str().and_then(|address| address.parse().ok());
            records.a.insert(name.to_lowercase(), vec![address.ok_or_else(|| format!("{name} has no address"))?]);
        }
        for (name, hosts) in section(file, "SRV") {
            let host = |host: &Value| {
                let port = host["port"].as_u64().and_then(|port| u16::try_from(port).ok())?;
                Some((host["target"].as_str()?.to_owned(), port))
            };
            let hosts: Option<Vec<_>> = hosts.as_array().and_then(|hosts| hosts.iter().map(host).collect());
            records.srv.insert(name.to_lowercase(), hosts.ok_or_else(|| format!("{name} has no hosts"))?);
        }
        for (name, texts) in section(file, "TXT") {
            let texts = serde_json::from_value(texts.clone()).map_err(|error| format!("{name}: {error}"))?;
            records.txt.insert(name.to_lowercase(), texts);
        }
        Ok(records)
    }

    /// Sets the hosts of a service, `host:port` each.
    pub fn set_srv(&mut self, name: &str, hosts: &[&str]) {
        let host = |host: &&str| {
            let (target, port) = host.split_once(':').expect("host:port");
            (target.to_owned(), port.parse().expect("a port"))
        };
        self.srv.insert(name.to_lowercase(), hosts.iter().map(host).collect());
    }

    /// Returns whether there are records of this name, or of a name below it.
    pub(super) fn has_name(&self, name: &str) -> bool {
        let names = self.srv.keys().chain(self.txt.keys()).chain(self.a.keys()).chain(self.cname.keys());
        let below =
            |known: &String| known.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        names.into_iter().any(below)
    }
}

fn section<'a>(file: &'a Value, name: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    file.get(name).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}
