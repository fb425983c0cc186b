//! The rules of a seed list: the query name, and the validation and selection of hosts.
//!
//! Read first: Initial DNS Seedlist Discovery, "Querying DNS", "srvServiceName", "srvMaxHosts",
//! "TXT Records".

use super::answer::{SrvAnswer, SrvRecord};
use super::error::SeedlistError;
use crate::{ConnectionString, Host, Scheme};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The DNS queries of a `mongodb+srv://` string, and the rules for their replies.
///
/// ```
/// use core::time::Duration;
/// use poolhouse_uri::dns::{SrvAnswer, SrvQuestion, SrvRecord};
/// use poolhouse_uri::ConnectionString;
///
/// let uri = ConnectionString::parse("mongodb+srv://cluster0.example.com/?srvServiceName=shop")?;
/// let question = SrvQuestion::of(&uri).expect("it is a mongodb+srv:// string");
/// assert_eq!(question.srv_name(), "_shop._tcp.cluster0.example.com");
/// assert_eq!(question.txt_name(), "cluster0.example.com");
///
/// let records = vec![SrvRecord::new("db1.example.com", 27017), SrvRecord::new("db2.example.com", 27018)];
/// let answer = SrvAnswer { records, ttl: Duration::from_secs(60) };
/// let resolved = question.resolve(&uri, &answer, &["replicaSet=rs0".into()], 0)?;
/// assert_eq!(resolved.to_string(), "mongodb://db1.example.com:27017,db2.example.com:27018/?replicaSet=rs0&tls=true");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SrvQuestion {
    host: String,
    service: String,
    hosts_max: Option<usize>,
}

impl SrvQuestion {
    /// The queries of this string; `None` if the string lists its hosts.
    #[must_use]
    pub fn of(uri: &ConnectionString) -> Option<Self> {
        let [host] = uri.hosts() else { return None };
        (uri.scheme() == Scheme::MongodbSrv).then(|| Self {
            host: host.name().into(),
            service: uri.srv_service_name().into(),
            hosts_max: uri.srv_max_hosts().map(|max| usize::try_from(max).unwrap_or(usize::MAX)),
        })
    }

    /// The name of the SRV records that list the hosts. It is complete: no search domain must be
    /// appended.
    #[must_use]
    pub fn srv_name(&self) -> String {
        format!("_{}._tcp.{}", self.service, self.host)
    }

    /// The name of the optional TXT record that contains options.
    #[must_use]
    pub fn txt_name(&self) -> &str {
        &self.host
    }

    /// Maximum number of hosts; `None` is without limit.
    #[must_use]
    pub const fn hosts_max(&self) -> Option<usize> {
        self.hosts_max
    }

    /// The host of a record, if it is valid for this string: it must be in the domain of the
    /// string's host.
    ///
    /// The domain is the part of the string's host after its first dot, or the whole host if it has
    /// fewer than three labels. A host is in a domain if it has at least one additional label.
    ///
    /// Source: Initial DNS Seedlist Discovery, "Querying DNS".
    #[must_use]
    pub fn check(&self, record: &SrvRecord) -> Option<Host> {
        let target = record.target.strip_suffix('.').unwrap_or(&record.target);
        let host = Host::tcp(target, Some(record.port)).ok()?;
        let domain = match self.host.split_once('.') {
            Some((_, domain)) if domain.contains('.') => domain,
            Some(_) | None => &self.host,
        };
        let part = host.name().strip_suffix(domain)?.strip_suffix('.')?;
        (!part.is_empty() && part.split('.').all(|label| !label.is_empty())).then_some(host)
    }

    /// The hosts of a reply, without duplicates: all of them, or a random selection of
    /// [`hosts_max`](Self::hosts_max).
    ///
    /// - `entropy`: random bits for the selection.
    ///
    /// # Errors
    ///
    /// [`SeedlistError::NoHosts`]; [`SeedlistError::ForeignHost`] if any of them is outside the domain.
    pub fn hosts(&self, answer: &SrvAnswer, entropy: u64) -> Result<Vec<Host>, SeedlistError> {
        let mut hosts = Vec::new();
        for record in &answer.records {
            let host = self.check(record);
            let foreign = || SeedlistError::ForeignHost { name: self.srv_name(), target: record.target.clone() };
            let host = host.ok_or_else(foreign)?;
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        if hosts.is_empty() {
            return Err(SeedlistError::NoHosts { name: self.srv_name() });
        }
        if let Some(max) = self.hosts_max.filter(|max| *max < hosts.len()) {
            choose(&mut hosts, max, entropy);
        }
        Ok(hosts)
    }

    /// The connection string with the results of the lookups: see [`ConnectionString::resolved`].
    ///
    /// - `txt`: the TXT records, each with its strings joined; empty if there is none.
    /// - `entropy`: random bits for the selection of hosts.
    ///
    /// # Errors
    ///
    /// As [`SrvQuestion::hosts`]; [`SeedlistError::ManyTxt`]; [`SeedlistError::Uri`] if the record
    /// contains an option that is not allowed in TXT records, or contradicts the string.
    ///
    /// Source: Initial DNS Seedlist Discovery, "Querying DNS", "Default Connection String Options".
    pub fn resolve(
        &self,
        uri: &ConnectionString,
        answer: &SrvAnswer,
        txt: &[String],
        entropy: u64,
    ) -> Result<ConnectionString, SeedlistError> {
        let hosts = self.hosts(answer, entropy)?;
        let txt = match txt {
            [] => None,
            [record] => Some(record.as_str()),
            many => return Err(SeedlistError::ManyTxt { name: self.txt_name().into(), count: many.len() }),
        };
        Ok(uri.resolved(hosts, txt)?)
    }
}

/// Keeps `count` items, chosen uniformly at random.
pub(super) fn choose<T>(items: &mut Vec<T>, count: usize, entropy: u64) {
    let mut state = entropy;
    for place in 0..count.min(items.len()) {
        // Fisher-Yates shuffle: each position is filled with one of the remaining items.
        let left = u64::try_from(items.len() - place).unwrap_or(u64::MAX);
        let wide = u128::from(next(&mut state)) * u128::from(left);
        let offset = usize::try_from(wide >> 64).unwrap_or(0);
        items.swap(place, place + offset);
    }
    items.truncate(count);
}

/// splitmix64: the next number of a sequence that is seeded with a few random bits.
const fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
