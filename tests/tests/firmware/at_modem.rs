//! A scripted modem: Espressif's AT commands on a Unix socket, the other end of the board's UART, over sockets of
//! the host. Mishaps can be planned.

use alloc::sync::Arc;
use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

const LINKS: usize = 5;
/// The time limit of connecting.
const CONNECT: Duration = Duration::from_secs(10);
/// The only name that it resolves, to the loopback address.
pub(crate) const NAME: &str = "db.test";

/// What goes wrong with a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mishap {
    /// It is answered with ERROR, and not executed.
    Error,
    /// It is answered with `busy p...`, and not executed.
    Busy,
    /// It is executed, and not answered.
    Silence,
    /// It is executed after these bytes.
    Garbage(&'static [u8]),
    /// It is executed; then its link is closed.
    Close,
    /// The modem restarts instead.
    Reset,
}

/// A mishap of the command with this number, counted from 0, of those that begin with a text.
pub(crate) type Plan = (&'static str, usize, Mishap);

pub(crate) struct AtModem(Arc<Mutex<State>>);

struct State {
    /// Towards the board.
    line: Option<UnixStream>,
    /// The answers to the present command are lost.
    is_silent: bool,
    has_echo: bool,
    is_multiple: bool,
    is_passive: bool,
    links: [Option<Link>; LINKS],
    /// The number of connections so far.
    connections: usize,
    commands: Vec<String>,
    plans: Vec<Plan>,
    errors: Vec<String>,
}

struct Link {
    stream: TcpStream,
    /// Which of all connections it is.
    number: usize,
    /// Received bytes, which the board has not asked for yet.
    received: Vec<u8>,
    is_closed: bool,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AtModem {
    /// Listens at a path for the board, which must connect once. The threads of the modem end with the line.
    pub(crate) fn start(path: &Path, plans: Vec<Plan>) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        let state = Arc::new(Mutex::new(State {
            line: None,
            is_silent: false,
            has_echo: true,
            is_multiple: false,
            is_passive: false,
            links: [const { None }; LINKS],
            connections: 0,
            commands: Vec::new(),
            plans,
            errors: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            let served = listener.accept().and_then(|(line, _)| {
                lock(&shared).line = Some(line.try_clone()?);
                serve(&shared, BufReader::new(line))
            });
            // The board may exit before it has read what the modem wrote last.
            let is_end =
                |error: &io::Error| matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset);
            if let Some(error) = served.err().filter(|error| !is_end(error)) {
                lock(&shared).errors.push(format!("the line: {error}"));
            }
        });
        Ok(Self(state))
    }

    /// Mishaps that have not happened yet.
    pub(crate) fn outstanding(&self) -> Vec<Plan> {
        lock(&self.0).plans.clone()
    }

    /// Invalid commands, and errors of the line.
    pub(crate) fn errors(&self) -> Vec<String> {
        lock(&self.0).errors.clone()
    }

    /// The number of commands that begin with a text.
    pub(crate) fn count_of(&self, start: &str) -> usize {
        lock(&self.0).commands.iter().filter(|command| command.starts_with(start)).count()
    }

    /// The number of links that are open.
    pub(crate) fn open_count(&self) -> usize {
        lock(&self.0).links.iter().flatten().count()
    }
}

/// Executes commands until the end of the line.
fn serve(shared: &Arc<Mutex<State>>, mut line: BufReader<UnixStream>) -> io::Result<()> {
    loop {
        let mut bytes = Vec::new();
        if line.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        if text.is_empty() {
            continue;
        }
        let mut state = lock(shared);
        if state.has_echo {
            state.write(&bytes)?;
        }
        let mishap = state.mishap_of(&text);
        state.commands.push(text.clone());
        match mishap {
            Some(Mishap::Error) => state.write(b"\r\nERROR\r\n")?,
            Some(Mishap::Busy) => state.write(b"busy p...\r\n")?,
            Some(Mishap::Reset) => state.reset()?,
            None | Some(Mishap::Silence | Mishap::Garbage(_) | Mishap::Close) => {
                if let Some(Mishap::Garbage(garbage)) = mishap {
                    state.write(garbage)?;
                }
                state.is_silent = mishap == Some(Mishap::Silence);
                drop(state);
                let executed = execute(shared, &mut line, &text)?;
                let mut state = lock(shared);
                if executed.is_none() {
                    state.errors.push(text.clone());
                    state.write(b"\r\nERROR\r\n")?;
                }
                state.is_silent = false;
                let index = number_after(&text, '=');
                if let (Some(Mishap::Close), Some(link)) =
                    (mishap, index.and_then(|index| state.links.get(index)?.as_ref()))
                {
                    // The thread that reads from it announces the close. It fails if the server has reset the connection.
                    let _ = link.stream.shutdown(Shutdown::Both);
                }
            }
        }
    }
}

/// The first number after a separator.
fn number_after(text: &str, separator: char) -> Option<usize> {
    text.split_once(separator)?.1.split(',').next()?.parse().ok()
}

/// Executes one command. `None` if it is invalid.
fn execute(shared: &Arc<Mutex<State>>, line: &mut BufReader<UnixStream>, text: &str) -> io::Result<Option<()>> {
    let (name, parameters) = text.split_once('=').unwrap_or((text, ""));
    let parameters: Vec<&str> = parameters.split(',').map(|parameter| parameter.trim_matches('"')).collect();
    let number = |index: usize| parameters.get(index).and_then(|parameter| parameter.parse::<usize>().ok());
    let index = number(0).filter(|index| *index < LINKS);
    let mut state = lock(shared);
    match name {
        "AT+RST" => {
            state.write(b"\r\nOK\r\n")?;
            state.reset()?;
        }
        "ATE0" => {
            state.has_echo = false;
            state.write(b"\r\nOK\r\n")?;
        }
        "AT+CIPMUX" => {
            state.is_multiple = number(0) == Some(1);
            state.write(b"\r\nOK\r\n")?;
        }
        "AT+CIPRECVMODE" => {
            state.is_passive = number(0) == Some(1);
            state.write(b"\r\nOK\r\n")?;
        }
        "AT+CIPDOMAIN" if parameters[0] == NAME => state.write(b"+CIPDOMAIN:\"127.0.0.1\"\r\n\r\nOK\r\n")?,
        "AT+CIPDOMAIN" => state.write(b"DNS Fail\r\n\r\nERROR\r\n")?,
        "AT+CIPSTART" => {
            let &[_, "TCP", ip, port] = &*parameters else { return Ok(None) };
            let (Some(index), true, true) = (index, state.is_multiple, state.is_passive) else { return Ok(None) };
            let Ok(address) = format!("{ip}:{port}").parse::<SocketAddr>() else { return Ok(None) };
            if state.links[index].as_ref().is_some_and(|link| !link.is_closed) {
                state.write(b"ALREADY CONNECTED\r\n\r\nERROR\r\n")?;
                return Ok(Some(()));
            }
            drop(state);
            let connected = TcpStream::connect_timeout(&address, CONNECT);
            let mut state = lock(shared);
            match connected {
                Ok(stream) => {
                    let reader = stream.try_clone()?;
                    let number = state.connections;
                    state.connections += 1;
                    state.links[index] = Some(Link { stream, number, received: Vec::new(), is_closed: false });
                    state.write(format!("{index},CONNECT\r\n\r\nOK\r\n").as_bytes())?;
                    let shared = Arc::clone(shared);
                    thread::spawn(move || receive(&shared, index, number, reader));
                }
                Err(_) => state.write(format!("{index},CLOSED\r\n\r\nERROR\r\n").as_bytes())?,
            }
        }
        "AT+CIPSEND" => {
            let (Some(index), Some(count @ 1..=2048)) = (index, number(1)) else { return Ok(None) };
            let Some(stream) = state.links[index].as_ref().filter(|link| !link.is_closed).map(|link| &link.stream)
            else {
                state.write(b"link is not valid\r\n\r\nERROR\r\n")?;
                return Ok(Some(()));
            };
            let mut stream = stream.try_clone()?;
            state.write(b"\r\nOK\r\n\r\n>")?;
            drop(state);
            let mut bytes = vec![0; count];
            line.read_exact(&mut bytes)?;
            let is_sent = stream.write_all(&bytes).is_ok();
            let end = if is_sent { "SEND OK" } else { "SEND FAIL" };
            lock(shared).write(format!("\r\nRecv {count} bytes\r\n\r\n{end}\r\n").as_bytes())?;
        }
        "AT+CIPRECVDATA" => {
            let (Some(index), Some(count @ 1..)) = (index, number(1)) else { return Ok(None) };
            let received = state.links[index].as_mut().map_or(&mut [][..], |link| &mut link.received);
            let count = count.min(received.len());
            if count == 0 {
                state.write(b"\r\nERROR\r\n")?;
                return Ok(Some(()));
            }
            let mut answer = format!("+CIPRECVDATA:{count},").into_bytes();
            answer.extend(state.links[index].iter_mut().flat_map(|link| link.received.drain(..count)));
            answer.extend(b"\r\nOK\r\n");
            state.write(&answer)?;
        }
        "AT+CIPCLOSE" => {
            let Some(index) = index else { return Ok(None) };
            match state.links[index].take() {
                Some(link) if !link.is_closed => {
                    let _ = link.stream.shutdown(Shutdown::Both);
                    state.write(format!("{index},CLOSED\r\n\r\nOK\r\n").as_bytes())?;
                }
                _ => state.write(b"\r\nERROR\r\n")?,
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(()))
}

/// Stores the bytes that a connection receives, and announces them to the board if none were stored before.
fn receive(shared: &Mutex<State>, index: usize, number: usize, mut stream: TcpStream) {
    let mut bytes = [0; 1024];
    loop {
        let count = stream.read(&mut bytes).unwrap_or(0);
        let mut state = lock(shared);
        let Some(link) = state.links[index].as_mut().filter(|link| link.number == number) else { return };
        let is_news = link.received.is_empty();
        link.received.extend_from_slice(&bytes[..count]);
        link.is_closed = count == 0;
        let written = match count {
            0 => state.write(format!("{index},CLOSED\r\n").as_bytes()),
            _ if is_news => state.write(format!("\r\n+IPD,{index},{count}\r\n").as_bytes()),
            _ => Ok(()),
        };
        if count == 0 || written.is_err() {
            return;
        }
    }
}

impl State {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.line {
            Some(line) if !self.is_silent => line.write_all(bytes),
            _ => Ok(()),
        }
    }

    /// The mishap that is planned for the next command.
    fn mishap_of(&mut self, text: &str) -> Option<Mishap> {
        let at = self.plans.iter().position(|(start, number, _)| {
            text.starts_with(start) && *number == self.commands.iter().filter(|it| it.starts_with(start)).count()
        })?;
        Some(self.plans.remove(at).2)
    }

    fn reset(&mut self) -> io::Result<()> {
        for link in self.links.iter_mut().filter_map(Option::take) {
            let _ = link.stream.shutdown(Shutdown::Both);
        }
        (self.has_echo, self.is_multiple, self.is_passive) = (true, false, false);
        self.write(b"\r\n\xfe\x00\x80rst cause:2, boot mode:(3,6)\r\n\r\nready\r\n")
    }
}
