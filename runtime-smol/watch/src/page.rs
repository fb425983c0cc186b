//! The web page: the state as server-sent events, and buttons for faults.
//!
//! It listens on loopback only. A request has a head of bounded size, no body, and the page's own
//! name as its host and origin, so that no other site can use a browser to send it.

use alloc::sync::Arc;
use core::fmt;
use core::net::{Ipv4Addr, SocketAddr};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::io;
use std::sync::Mutex;

use serde_json::{Value, json};
use smol::Timer;
use smol::channel::Sender;
use smol::future::FutureExt;
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::{TcpListener, TcpStream};

use crate::command::Command;
use crate::load::with;
use crate::state::{Health, State};

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// The largest number of header fields.
const FIELDS_MAX: usize = 64;
/// The largest number of connections; further ones are closed at once.
const CONNECTIONS_MAX: usize = 32;
/// The limit of the time for a request, and for each write.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time between two states.
const PERIOD: Duration = Duration::from_millis(250);

const TEXT: &str = "text/plain; charset=utf-8";
/// Fields of every reply. No resource is loaded from elsewhere.
const FIELDS: &str = "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n";

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    File {
        content_type: &'static str,
        text: &'static str,
    },
    /// The states, until the client or the program ends.
    States,
    Command(Command),
}

/// The status of a request that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    BadRequest,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    TimedOut,
    BodyTooLarge,
    HeadTooLarge,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadRequest => "400 Bad Request",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::TimedOut => "408 Request Timeout",
            Self::BodyTooLarge => "413 Content Too Large",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
        })
    }
}

/// A listener of the page.
pub(crate) struct Page {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    commands: Sender<Command>,
}

impl Page {
    /// - `port`: 0 = any free one.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) async fn bind(port: u16, state: Arc<Mutex<State>>, commands: Sender<Command>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, state, commands })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Serves until it is dropped.
    pub(crate) async fn serve(self) {
        let page = Arc::new(self);
        let open = Arc::new(AtomicUsize::new(0));
        loop {
            let Ok((stream, _)) = page.listener.accept().await else {
                // For example without free file descriptors.
                Timer::after(PERIOD).await;
                continue;
            };
            if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (page, open) = (Arc::clone(&page), Arc::clone(&open));
            let answer = async move {
                // The client is gone, or does not read.
                let _ = page.answer(stream).await;
                open.fetch_sub(1, Ordering::Relaxed);
            };
            smol::spawn(answer).detach();
        }
    }

    async fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        let late = async {
            Timer::after(PATIENCE).await;
            Ok(Err(Refusal::TimedOut))
        };
        let head = read_head(&mut stream).or(late).await?;
        match head.and_then(|head| route(&head, self.address.port())) {
            Err(refusal) => write(&mut stream, &reply(&refusal.to_string(), TEXT, &refusal.to_string())).await,
            Ok(Route::File { content_type, text }) => write(&mut stream, &reply("200 OK", content_type, text)).await,
            Ok(Route::Command(command)) => {
                // A full queue means that the program is ending, or that the client repeats itself.
                let status =
                    if self.commands.try_send(command).is_ok() { "202 Accepted" } else { "429 Too Many Requests" };
                write(&mut stream, &reply(status, TEXT, status)).await
            }
            Ok(Route::States) => {
                let start = format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{FIELDS}\r\n");
                write(&mut stream, &start).await?;
                loop {
                    let state = with(&self.state, |state| json(state));
                    write(&mut stream, &format!("data: {state}\n\n")).await?;
                    Timer::after(PERIOD).await;
                }
            }
        }
    }
}

/// Reads up to the end of the head. Bytes after it are not read to their end.
async fn read_head(stream: &mut TcpStream) -> io::Result<Result<Vec<u8>, Refusal>> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let count = stream.read(&mut piece).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&piece[..count]);
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(Ok(head));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Ok(Err(Refusal::HeadTooLarge));
        }
    }
}

/// Returns what a request with this head asks the page at this port for.
fn route(head: &[u8], port: u16) -> Result<Route, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Refusal::HeadTooLarge),
        Ok(httparse::Status::Partial) | Err(_) => return Err(Refusal::BadRequest),
    }
    // Browsers leave out the default port.
    let port = if port == 80 { String::new() } else { format!(":{port}") };
    let hosts = [format!("127.0.0.1{port}"), format!("localhost{port}")];
    let mut host = None;
    for field in &*request.headers {
        let value = core::str::from_utf8(field.value).map_err(|_| Refusal::BadRequest)?;
        if field.name.eq_ignore_ascii_case("host") && host.replace(value).is_some() {
            return Err(Refusal::BadRequest);
        }
        if field.name.eq_ignore_ascii_case("origin") {
            let own = value.strip_prefix("http://").is_some_and(|origin| hosts.iter().any(|host| host == origin));
            if !own {
                return Err(Refusal::Forbidden);
            }
        }
        // Requests that another site makes by an image or a link have no origin.
        if field.name.eq_ignore_ascii_case("sec-fetch-site") && !["same-origin", "none"].contains(&value) {
            return Err(Refusal::Forbidden);
        }
        let body = field.name.eq_ignore_ascii_case("content-length") && value != "0";
        if body || field.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(Refusal::BodyTooLarge);
        }
    }
    // A name that another site had resolve to loopback.
    let host = host.ok_or(Refusal::BadRequest)?;
    if !hosts.iter().any(|own| own == host) {
        return Err(Refusal::Forbidden);
    }
    let file = |content_type, text| Route::File { content_type, text };
    let (method, found) = match request.path.ok_or(Refusal::BadRequest)? {
        "/" => ("GET", file("text/html; charset=utf-8", include_str!("page/page.html"))),
        "/page.js" => ("GET", file("text/javascript; charset=utf-8", include_str!("page/page.js"))),
        "/page.css" => ("GET", file("text/css; charset=utf-8", include_str!("page/page.css"))),
        "/states" => ("GET", Route::States),
        "/failover" => ("POST", Route::Command(Command::FailOver)),
        "/freeze" => ("POST", Route::Command(Command::Freeze)),
        _ => return Err(Refusal::NotFound),
    };
    if request.method == Some(method) { Ok(found) } else { Err(Refusal::MethodNotAllowed) }
}

fn reply(status: &str, content_type: &str, text: &str) -> String {
    let length = text.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{FIELDS}\r\n{text}")
}

async fn write(stream: &mut TcpStream, text: &str) -> io::Result<()> {
    let late = async {
        Timer::after(PATIENCE).await;
        Err(io::ErrorKind::TimedOut.into())
    };
    stream.write_all(text.as_bytes()).or(late).await
}

/// Returns the state as the page reads it.
fn json(state: &State) -> Value {
    let samples = state.samples.iter().map(|sample| {
        json!({ "rate": sample.rate, "p50": sample.p50_us, "p99": sample.p99_us, "failover": sample.failover })
    });
    let servers = state.servers.iter().map(|server| {
        json!({
            "address": server.address,
            "type": server.kind,
            "out": server.health == Health::Out,
            "detail": server.detail,
            "counts": server.counts,
            "max": server.bar_max,
        })
    });
    let words = state.words;
    let counts: Vec<&str> = words.counts.iter().map(|(_, title)| *title).collect();
    let events = state.events.iter().map(|event| {
        json!({ "at": event.at.as_secs_f64(), "ms": event.unix_ms, "kind": event.kind.name(), "text": event.text })
    });
    json!({
        "time": state.time.as_secs_f64(),
        "titles": { "type": words.kind.0, "detail": words.detail, "bar": words.bar, "counts": counts },
        "commands": state.demo.as_ref().map(|demo| &demo.commands),
        "frozen": state.demo.as_ref().and_then(|demo| demo.frozen.as_ref()),
        "succeeded": state.totals.succeeded,
        "other": (state.totals.other, words.other),
        "failed": state.totals.failed,
        "connections": state.resized.map(|resized| resized.to_string()),
        "samples": samples.collect::<Vec<_>>(),
        "servers": servers.collect::<Vec<_>>(),
        "events": events.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;
