//! The command line.

use core::time::Duration;

pub(crate) struct Arguments {
    /// The connection string; `None` = a fake replica set.
    pub(crate) uri: Option<String>,
    /// The hosts of `--cassandra`, which are fake nodes if there are none; `None` = MongoDB.
    pub(crate) hosts: Option<Vec<String>>,
    /// User and password for `hosts`.
    pub(crate) credential: Option<(String, String)>,
    /// The number of tasks; `None` = the database's default.
    pub(crate) tasks: Option<u32>,
    /// How long to run; `None` = ten seconds, or with a screen until the user ends it.
    pub(crate) time: Option<Duration>,
    /// The port of the page; 0 = any free one.
    pub(crate) serve: Option<u16>,
    /// Whether only the user fails the primary over.
    pub(crate) calm: bool,
}

const USAGE: &str = "usage: poolhouse-watch [mongodb://host:port[,host:port..][/?replicaSet=name]] [--calm]
             [--tasks N] [--seconds S] [--serve [PORT]]
       poolhouse-watch --cassandra [HOST[:PORT]..] [--user NAME --password WORD]
             [--tasks N] [--seconds S] [--serve [PORT]]
Users and TLS of MongoDB need a build with --features auth,tls";

impl Arguments {
    /// # Errors
    /// The message for the user: what is wrong, or the usage if it was asked for.
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed =
            Self { uri: None, hosts: None, credential: None, tasks: None, time: None, serve: None, calm: false };
        let (mut user, mut password) = (None, None);
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            let mut number = || words.next().and_then(|value| value.parse::<u32>().ok()).filter(|value| *value > 0);
            match word.as_str() {
                "--cassandra" => drop(parsed.hosts.get_or_insert_default()),
                "--user" => user = Some(words.next().ok_or("--user takes a name")?),
                "--password" => password = Some(words.next().ok_or("--password takes a password")?),
                "--tasks" => parsed.tasks = Some(number().ok_or("--tasks takes a number from 1")?),
                "--seconds" => {
                    let seconds = number().ok_or("--seconds takes a number from 1")?;
                    parsed.time = Some(Duration::from_secs(seconds.into()));
                }
                "--serve" => {
                    let is_number = |value: &String| value.bytes().all(|byte| byte.is_ascii_digit());
                    let port = words.next_if(is_number).map(|value| value.parse());
                    parsed.serve = Some(port.unwrap_or(Ok(0)).map_err(|_| "--serve takes a port up to 65535")?);
                }
                "--calm" => parsed.calm = true,
                "--help" | "-h" => return Err(USAGE.to_owned()),
                other => match &mut parsed.hosts {
                    Some(hosts) if !other.starts_with('-') => hosts.push(word),
                    None if other.starts_with("mongodb") && parsed.uri.is_none() => parsed.uri = Some(word),
                    Some(_) | None => return Err(format!("{other}: not understood\n{USAGE}")),
                },
            }
        }
        parsed.credential = match (user, password) {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err("--user and --password are given together".to_owned()),
        };
        if parsed.hosts.is_some() {
            if parsed.uri.is_some() || parsed.calm {
                return Err("--cassandra takes no connection string and no --calm".to_owned());
            }
            if parsed.credential.is_some() && parsed.hosts.as_ref().is_some_and(Vec::is_empty) {
                return Err("the fake nodes take no --user: name a host".to_owned());
            }
        } else if parsed.credential.is_some() {
            return Err("--user is for --cassandra; a connection string has its own".to_owned());
        }
        Ok(parsed)
    }
}
