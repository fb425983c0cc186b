//! Parser of connection strings, limited to the options in the official tests of discovery.

/// The content of a test's `uri`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Uri {
    pub(super) hosts: Vec<String>,
    pub(super) replica_set: Option<String>,
    pub(super) direct_connection: bool,
    pub(super) load_balanced: bool,
}

impl Uri {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let rest =
            text.strip_prefix("mongodb://").ok_or_else(|| format!("{text} is not a mongodb:// connection string"))?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, _database) = rest.split_once('/').unwrap_or((rest, ""));
        let hosts = hosts.rsplit_once('@').map_or(hosts, |(_credentials, hosts)| hosts);
        let mut uri = Self { hosts: hosts.split(',').map(decoded).collect::<Result<_, _>>()?, ..Self::default() };
        for option in options.split(['&', ';']).filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').ok_or_else(|| format!("{option} has no value"))?;
            let value = decoded(value)?;
            match name.to_ascii_lowercase().as_str() {
                "replicaset" => uri.replica_set = Some(value),
                "directconnection" => uri.direct_connection = value == "true",
                "loadbalanced" => uri.load_balanced = value == "true",
                // It affects only the interval of checks, and this runner has no checks.
                "heartbeatfrequencyms" => {}
                _ => return Err(format!("the runner does not support the option {name}")),
            }
        }
        Ok(uri)
    }
}

fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = tail.get(..2).and_then(|digits| core::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| format!("{text} has a bad escape"))?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|error| error.to_string())
}
