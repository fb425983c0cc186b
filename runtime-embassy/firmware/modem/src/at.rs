//! The driver of a modem with Espressif's AT commands (ESP-AT) on a serial line. For another modem, the commands and
//! the notices differ.
//!
//! [`Driver::run`] owns the line, and executes one command after the other. The modem may send anything: lines and
//! bytes are limited, unknown lines are ignored, and a command without an answer in time restarts the modem, which
//! ends all connections.
//!
//! The modem must discard the bytes of a closed connection when its number is dialed again.
//!
//! The modem itself joins its network, with the settings that it has stored. While it connects it executes nothing
//! else: a host that is silent delays all links.
//!
//! Read first: ESP-AT User Guide, "TCP/IP AT Commands".

use super::links::{CHUNK, Job, Modem, Outcome};
use core::fmt::{self, Write as _};
use core::net::IpAddr;
use embassy_futures::select::{Either, select};
use embassy_futures::yield_now;
use embassy_time::{Duration, Timer, with_timeout};
use embedded_io_async::{Read, Write};
use heapless::{Deque, String};

/// The longest line, in bytes; longer ones are ignored.
const LINE: usize = 128;
/// The most that is read from the line before other tasks run.
const INPUT: usize = 32;
/// The time limit of a command.
const ANSWER: Duration = Duration::from_secs(5);
/// The time limit of a command that uses the network to connect or to resolve.
const REMOTE: Duration = Duration::from_secs(20);
/// The pause before a command that the modem was too busy for is sent again, and after a failed restart.
const PAUSE: Duration = Duration::from_millis(100);

/// The state of the modem is unknown.
enum Fault {
    /// It did not answer in time, or wrongly.
    Unanswered,
    /// It has restarted.
    Restarted,
}

/// The end of an answer.
enum Reply {
    Ok,
    Error,
    Busy,
    /// It waits for the bytes to send.
    Prompt,
}

/// The side of the modem that owns the serial line.
pub(crate) struct Driver<U> {
    modem: &'static Modem,
    uart: U,
    input: Deque<u8, INPUT>,
    /// The beginning of a line.
    line: String<LINE>,
    is_too_long: bool,
    turn: usize,
    /// The link that has asked for bytes, and the number of bytes in the answer.
    asking: Option<(usize, Option<usize>)>,
    /// The address in the answer.
    address: Option<IpAddr>,
}

impl<U: Read + Write> Driver<U> {
    pub(crate) const fn new(modem: &'static Modem, uart: U) -> Self {
        Self {
            modem,
            uart,
            input: Deque::new(),
            line: String::new(),
            is_too_long: false,
            turn: 0,
            asking: None,
            address: None,
        }
    }

    /// Serves all connections, for ever.
    pub(crate) async fn run(mut self) -> ! {
        let mut fault = Fault::Unanswered;
        loop {
            self.asking = None;
            let started = match fault {
                Fault::Unanswered => with_timeout(ANSWER, self.restart()).await,
                Fault::Restarted => with_timeout(ANSWER, self.set_up()).await,
            };
            fault = match started.unwrap_or(Err(Fault::Unanswered)) {
                Ok(()) => self.serve().await,
                Err(fault) => {
                    Timer::after(PAUSE).await;
                    fault
                }
            };
            self.modem.fail_all();
        }
    }

    async fn restart(&mut self) -> Result<(), Fault> {
        // If the modem still waits for bytes to send, these are taken for them. No valid message ends with them.
        for _ in 0..CHUNK / 2 {
            self.write(b"\r\n").await?;
        }
        self.write(b"AT+RST\r\n").await?;
        while !matches!(self.reply().await, Err(Fault::Restarted)) {}
        self.set_up().await
    }

    /// No echo, several links, and bytes only when the driver asks for them.
    async fn set_up(&mut self) -> Result<(), Fault> {
        let is_set_up = self.command(format_args!("ATE0")).await?
            && self.command(format_args!("AT+CIPMUX=1")).await?
            // Later versions have only the second.
            && (self.command(format_args!("AT+CIPRECVMODE=1")).await?
                || self.command(format_args!("AT+CIPRECVTYPE=5,1")).await?);
        if is_set_up { Ok(()) } else { Err(Fault::Unanswered) }
    }

    /// Executes jobs, and reads notices while there is none.
    async fn serve(&mut self) -> Fault {
        let modem = self.modem;
        loop {
            let mut turn = self.turn;
            let served = match select(modem.job(&mut turn), self.reply()).await {
                Either::First((index, job)) => {
                    self.turn = turn;
                    let limit = if matches!(job, Job::Dial(_) | Job::Resolve(_)) { REMOTE } else { ANSWER };
                    let executed = with_timeout(limit, self.execute(index, job)).await;
                    executed.unwrap_or(Err(Fault::Unanswered)).map(|outcome| modem.done(index, outcome))
                }
                // An answer without a command.
                Either::Second(reply) => reply.map(drop),
            };
            if let Err(fault) = served {
                return fault;
            }
        }
    }

    async fn execute(&mut self, index: usize, job: Job) -> Result<Outcome, Fault> {
        Ok(match job {
            Job::Resolve(name) => {
                let name = str::from_utf8(&name).unwrap_or_default();
                self.address = None;
                let is_ok = self.command(format_args!("AT+CIPDOMAIN=\"{name}\"")).await?;
                Outcome::Resolved(self.address.filter(|_| is_ok))
            }
            Job::Dial(remote) => {
                let (kind, ip, port) = (if remote.is_ipv4() { "TCP" } else { "TCPv6" }, remote.ip(), remote.port());
                Outcome::Dialed(self.command(format_args!("AT+CIPSTART={index},\"{kind}\",\"{ip}\",{port}")).await?)
            }
            Job::Send(bytes) => Outcome::Sent(self.send(index, &bytes).await?),
            Job::Receive => {
                self.asking = Some((index, None));
                let is_ok = self.command(format_args!("AT+CIPRECVDATA={index},{CHUNK}")).await?;
                let count = self.asking.take().and_then(|(_, count)| count);
                // Without its count, the bytes of an answer are lost.
                if is_ok && count.is_none() {
                    return Err(Fault::Unanswered);
                }
                Outcome::Received(count.filter(|_| is_ok))
            }
            Job::Close => {
                // An error means that the modem has no connection. If it has one, the next attempt to connect fails,
                // and closes again.
                self.command(format_args!("AT+CIPCLOSE={index}")).await?;
                Outcome::Closed
            }
        })
    }

    async fn send(&mut self, index: usize, bytes: &[u8]) -> Result<bool, Fault> {
        if !self.command(format_args!("AT+CIPSEND={index},{}", bytes.len())).await? {
            return Ok(false);
        }
        let Reply::Prompt = self.reply().await? else { return Err(Fault::Unanswered) };
        self.write(bytes).await?;
        match self.reply().await? {
            Reply::Ok => Ok(true),
            Reply::Error => Ok(false),
            Reply::Busy | Reply::Prompt => Err(Fault::Unanswered),
        }
    }

    /// Sends a command, again while the modem is busy. Returns whether it was executed.
    async fn command(&mut self, command: fmt::Arguments<'_>) -> Result<bool, Fault> {
        let mut text = String::<LINE>::new();
        write!(text, "{command}\r\n").map_err(|_| Fault::Unanswered)?;
        loop {
            self.write(text.as_bytes()).await?;
            match self.reply().await? {
                Reply::Ok => return Ok(true),
                Reply::Error => return Ok(false),
                Reply::Busy => Timer::after(PAUSE).await,
                Reply::Prompt => return Err(Fault::Unanswered),
            }
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.uart.write_all(bytes).await.map_err(|_| Fault::Unanswered)?;
        self.uart.flush().await.map_err(|_| Fault::Unanswered)
    }

    /// Reads until the end of an answer. The future may be dropped between commands: it keeps the line that has
    /// begun.
    async fn reply(&mut self) -> Result<Reply, Fault> {
        loop {
            match self.byte().await? {
                b'\n' => {
                    let is_too_long = core::mem::take(&mut self.is_too_long);
                    let line = core::mem::take(&mut self.line);
                    match line.trim() {
                        _ if is_too_long => {}
                        "OK" | "SEND OK" => return Ok(Reply::Ok),
                        "ERROR" | "SEND FAIL" => return Ok(Reply::Error),
                        "ready" => return Err(Fault::Restarted),
                        text if text.starts_with("busy") => return Ok(Reply::Busy),
                        text => self.notice(text),
                    }
                }
                b'>' if self.line.is_empty() => return Ok(Reply::Prompt),
                b',' if self.line.starts_with("+CIPRECVDATA:") => {
                    let line = core::mem::take(&mut self.line);
                    let count = line.strip_prefix("+CIPRECVDATA:").and_then(|count| count.parse().ok());
                    self.receive(count.ok_or(Fault::Unanswered)?).await?;
                }
                // No line that matters has other bytes than ASCII.
                byte => self.is_too_long |= self.line.push(if byte.is_ascii() { byte.into() } else { '?' }).is_err(),
            }
        }
    }

    /// Passes bytes to the link that has asked for them.
    async fn receive(&mut self, count: usize) -> Result<(), Fault> {
        let Some((index, None)) = self.asking.filter(|_| count <= CHUNK) else { return Err(Fault::Unanswered) };
        for _ in 0..count {
            let byte = self.byte().await?;
            if !self.modem.received(index, byte) {
                return Err(Fault::Unanswered);
            }
        }
        self.asking = Some((index, Some(count)));
        Ok(())
    }

    fn notice(&mut self, text: &str) {
        if let Some(address) = text.strip_prefix("+CIPDOMAIN:") {
            self.address = address.trim_matches('"').parse().ok();
        } else if let Some((link, _)) = text.strip_prefix("+IPD,").and_then(|rest| rest.split_once(',')) {
            link.parse().into_iter().for_each(|index| self.modem.announced(index));
        } else if let Some(link) = text.strip_suffix(",CLOSED") {
            link.parse().into_iter().for_each(|index| self.modem.closed_by_peer(index));
        }
    }

    async fn byte(&mut self) -> Result<u8, Fault> {
        loop {
            if let Some(byte) = self.input.pop_front() {
                return Ok(byte);
            }
            // A modem that never stops sending does not stop other tasks.
            yield_now().await;
            let mut input = [0; INPUT];
            let count = self.uart.read(&mut input).await.map_err(|_| Fault::Unanswered)?;
            if count == 0 {
                return Err(Fault::Unanswered);
            }
            self.input.extend(input[..count].iter().copied());
        }
    }
}
