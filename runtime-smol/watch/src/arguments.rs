//! The command line.

use core::time::Duration;

pub(crate) struct Arguments {
    /// The connection string; `None` = a fake replica set.
    pub(crate) uri: Option<String>,
    pub(crate) tasks: u32,
    /// How long to run; `None` = ten seconds, or with a screen until the user ends it.
    pub(crate) time: Option<Duration>,
    /// The port of the page; 0 = any free one.
    pub(crate) serve: Option<u16>,
    /// Whether only the user fails the primary over.
    pub(crate) calm: bool,
}

const USAGE: &str = "usage: poolhouse-watch [mongodb://host:port[,host:port..][/?replicaSet=name]]
             [--tasks N] [--seconds S] [--serve [PORT]] [--calm]
Users and TLS need a build with --features auth,tls";

impl Arguments {
    /// # Errors
    /// The message for the user: what is wrong, or the usage if it was asked for.
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self { uri: None, tasks: 64, time: None, serve: None, calm: false };
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            let mut number = || words.next().and_then(|value| value.parse::<u32>().ok()).filter(|value| *value > 0);
            match word.as_str() {
                "--tasks" => parsed.tasks = number().ok_or("--tasks takes a number from 1")?,
                "--seconds" => {
                    let seconds = number().ok_or("--seconds takes a number from 1")?;
                    parsed.time = Some(Duration::from_secs(seconds.into()));
                }
                "--serve" => {
                    let port = words.peek().and_then(|value| value.parse().ok());
                    if port.is_some() {
                        words.next();
                    }
                    parsed.serve = Some(port.unwrap_or(0));
                }
                "--calm" => parsed.calm = true,
                "--help" | "-h" => return Err(USAGE.to_owned()),
                uri if uri.starts_with("mongodb") && parsed.uri.is_none() => parsed.uri = Some(uri.to_owned()),
                other => return Err(format!("{other}: not understood\n{USAGE}")),
            }
        }
        Ok(parsed)
    }
}
