//! HTTP/1.1 for the order service: requests with a `Content-Length`, connections that are kept open,
//! and a list as lines of JSON. Sizes, times and the number of connections are limited.

use crate::orders::{Failure, Order, Orders};
use alloc::sync::Arc;
use core::time::Duration;
use serde_json::{Value, json};
use smol::Timer;
use smol::channel::{Receiver, Sender, bounded};
use smol::future::FutureExt as _;
use smol::io::{AsyncReadExt as _, AsyncWriteExt as _};
use smol::lock::Semaphore;
use smol::net::{TcpListener, TcpStream};
use std::io;

/// Limits of a request, in bytes.
const HEAD_MAX: usize = 16 << 10;
const BODY_MAX: usize = 64 << 10;
/// Bytes of a list that are sent at once.
const CHUNK_BYTES: usize = 16 << 10;
const CONNECTIONS_MAX: usize = 1_000;
/// From the end of a response to the end of the next request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the peer may take to read a part of a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long pending requests may take when the service ends: longer than a payment, which is a transaction and then its abort,
/// with a time limit each.
const END_TIMEOUT: Duration = Duration::from_secs(70);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

struct Request {
    method: String,
    /// The segments of the path, decoded.
    path: Vec<String>,
    /// The names and values of the query, decoded.
    query: Vec<(String, String)>,
    body: Vec<u8>,
    keeps_open: bool,
}

/// Serves until `end`; then accepts no connection, and waits for the responses to pending requests.
pub(crate) async fn serve(listener: TcpListener, orders: Orders, end: impl Future<Output = ()>) {
    // Nothing is sent: dropping all senders is the signal.
    let (closing, closed) = bounded(1);
    let (open, all_ended) = bounded(1);
    end.or(accept(&listener, &orders, &closed, &open)).await;
    drop((listener, closing, open));
    let all_ended = async { _ = all_ended.recv().await };
    all_ended.or(async { _ = Timer::after(END_TIMEOUT).await }).await;
}

async fn accept(listener: &TcpListener, orders: &Orders, closed: &Receiver<()>, open: &Sender<()>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = places.acquire_arc().await;
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open files, for example.
            Timer::after(ACCEPT_PAUSE).await;
            continue;
        };
        let (orders, closed, open) = (orders.clone(), closed.clone(), open.clone());
        smol::spawn(async move {
            let _held = (place, open);
            // The peer sees that the connection is closed.
            drop(answer(stream, &orders, &closed).await);
        })
        .detach();
    }
}

/// Answers the requests of a connection.
async fn answer(mut stream: TcpStream, orders: &Orders, closed: &Receiver<()>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut received = Vec::new();
    loop {
        let end = async {
            _ = closed.recv().await;
            Ok(None)
        };
        let request = match end.or(limited(REQUEST_TIMEOUT, read(&mut stream, &mut received))).await {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return respond(&mut stream, false, 400, &json!({ "error": error.to_string() })).await;
            }
            Err(error) => return Err(error),
        };
        let keeps_open = || request.keeps_open && !closed.is_closed();
        let is_open = if request.method == "GET" && request.path == ["orders"] {
            list(&mut stream, keeps_open(), &request, orders).await?;
            keeps_open()
        } else {
            let (status, body) = route(&request, orders).await;
            // The service may be ending since the request arrived.
            let is_open = keeps_open();
            respond(&mut stream, is_open, status, &body).await?;
            is_open
        };
        if !is_open {
            return Ok(());
        }
    }
}

/// Returns the status and the body of a response.
async fn route(request: &Request, orders: &Orders) -> (u16, Value) {
    let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
    let outcome = match (request.method.as_str(), path.as_slice()) {
        ("GET", ["health"]) => return health(orders),
        ("POST", ["orders"]) => {
            let order: Order = match serde_json::from_slice(&request.body) {
                Ok(order) => order,
                Err(error) => return (400, json!({ "error": error.to_string() })),
            };
            let number = order.number.clone();
            orders.insert(order).await.map(|()| (201, json!({ "number": number })))
        }
        ("GET", ["orders", number]) => orders.find(number).await.map(|order| (200, json!(order))),
        ("POST", ["orders", number, "pay"]) => {
            orders.pay(number).await.map(|()| (200, json!({ "number": number, "paid": true })))
        }
        (_, ["orders" | "health"] | ["orders", _] | ["orders", _, "pay"]) => {
            return (405, json!({ "error": "the method is not allowed" }));
        }
        _ => return (404, json!({ "error": "there is no such path" })),
    };
    outcome.unwrap_or_else(|failure| refusal(&failure))
}

fn refusal(failure: &Failure) -> (u16, Value) {
    match failure {
        Failure::NumberTaken => (409, json!({ "error": "the number is taken" })),
        Failure::NotFound => (404, json!({ "error": "there is no such order" })),
        Failure::AlreadyPaid => (409, json!({ "error": "the order is paid already" })),
        Failure::Database(error) => {
            // The text names servers, so it is for the log.
            eprintln!("{error}");
            if error.is_timeout() || error.is_transient() {
                (503, json!({ "error": "it is not known whether the request was executed; it may be repeated" }))
            } else {
                (500, json!({ "error": "the database failed" }))
            }
        }
    }
}

fn health(orders: &Orders) -> (u16, Value) {
    let (is_writable, servers) = orders.health();
    let server = |server: &poolhouse_smol::ServerStatus| {
        json!({
            "address": server.address, "type": format!("{:?}", server.server_type),
            "connections": server.pool.counts.total(), "idle": server.pool.counts.available,
        })
    };
    let servers: Vec<Value> = servers.iter().map(server).collect();
    (if is_writable { 200 } else { 503 }, json!({ "writable": is_writable, "servers": servers }))
}

/// Sends the orders of a customer, one per line, as the cursor returns them. If a batch fails, the
/// connection is closed before the last chunk, so the peer detects that the list is incomplete.
async fn list(stream: &mut TcpStream, keeps_open: bool, request: &Request, orders: &Orders) -> io::Result<()> {
    let Some((_, customer)) = request.query.iter().find(|(name, _)| name == "customer") else {
        return respond(stream, keeps_open, 400, &json!({ "error": "the query has no customer" })).await;
    };
    let mut cursor = match orders.of_customer(customer).await {
        Ok(cursor) => cursor,
        Err(error) => {
            let (status, body) = refusal(&error.into());
            return respond(stream, keeps_open, status, &body).await;
        }
    };
    let connection = if keeps_open { "keep-alive" } else { "close" };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\nConnection: {connection}\r\n\r\n"
    );
    write(stream, head.as_bytes()).await?;
    let mut lines = Vec::new();
    while let Some(order) = cursor.try_next().await.map_err(io::Error::other)? {
        serde_json::to_writer(&mut lines, &order)?;
        lines.push(b'\n');
        if lines.len() >= CHUNK_BYTES {
            write_chunk(stream, &lines).await?;
            lines.clear();
        }
    }
    if !lines.is_empty() {
        write_chunk(stream, &lines).await?;
    }
    write(stream, b"0\r\n\r\n").await
}

async fn write_chunk(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    write(stream, format!("{:x}\r\n", bytes.len()).as_bytes()).await?;
    write(stream, bytes).await?;
    write(stream, b"\r\n").await
}

async fn respond(stream: &mut TcpStream, keeps_open: bool, status: u16, body: &Value) -> io::Result<()> {
    let reason = match status {
        200 => "OK",
        201 => "Created",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    };
    let connection = if keeps_open { "keep-alive" } else { "close" };
    let body = format!("{body}\n");
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: {connection}\r\n\r\n"
    );
    write(stream, (head + &body).as_bytes()).await
}

async fn write(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    limited(WRITE_TIMEOUT, stream.write_all(bytes)).await
}

async fn limited<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = async {
        Timer::after(limit).await;
        Err(io::ErrorKind::TimedOut.into())
    };
    work.or(late).await
}

/// Reads a request; `None` if the peer closes the connection before it.
///
/// - `received`: bytes that were received and not yet read.
async fn read(stream: &mut TcpStream, received: &mut Vec<u8>) -> io::Result<Option<Request>> {
    let (mut request, head_bytes, body_bytes) = loop {
        let head = parse_head(received)?;
        if head.as_ref().map_or(received.len(), |(_, head_bytes, _)| *head_bytes) > HEAD_MAX {
            return Err(invalid("the head is too long"));
        }
        if let Some(head) = head {
            break head;
        }
        if !receive(stream, received).await? {
            return if received.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
    };
    if body_bytes > BODY_MAX {
        return Err(invalid("the body is too long"));
    }
    while received.len() < head_bytes + body_bytes {
        if !receive(stream, received).await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    request.body = received.drain(..head_bytes + body_bytes).skip(head_bytes).collect();
    Ok(Some(request))
}

/// Receives some bytes; false at the end of the stream.
async fn receive(stream: &mut TcpStream, received: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = [0; 4 << 10];
    let bytes = stream.read(&mut buffer).await?;
    received.extend_from_slice(&buffer[..bytes]);
    Ok(bytes > 0)
}

/// Parses the head of a request. Returns it with the lengths of head and body; `None` if more bytes
/// are needed.
fn parse_head(received: &[u8]) -> io::Result<Option<(Request, usize, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head_bytes) = head.parse(received).map_err(invalid)? else { return Ok(None) };
    let all = |name: &'static str| head.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
    if head.version != Some(1) || all("Transfer-Encoding").next().is_some() {
        return Err(invalid("the service reads HTTP/1.1 with a Content-Length"));
    }
    let length = |value: &[u8]| {
        // Because `parse` accepts a sign.
        let digits = value.iter().all(u8::is_ascii_digit).then_some(value)?;
        core::str::from_utf8(digits).ok()?.parse().ok()
    };
    let mut lengths = all("Content-Length").map(|header| length(header.value));
    // The second of two lengths may be that of a proxy, so both are refused.
    let body_bytes = match (lengths.next(), lengths.next()) {
        (None, _) => 0,
        (Some(Some(length)), None) => length,
        _ => return Err(invalid("the Content-Length is malformed")),
    };
    let (path, query) = head.path.unwrap_or_default().split_once('?').unwrap_or((head.path.unwrap_or_default(), ""));
    let path = path.strip_prefix('/').ok_or_else(|| invalid("the path is not absolute"))?;
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((decoded(&name.replace('+', " "))?, decoded(&value.replace('+', " "))?))
    };
    let request = Request {
        method: head.method.unwrap_or_default().to_owned(),
        path: path.split('/').map(decoded).collect::<io::Result<_>>()?,
        query: query.split('&').filter(|it| !it.is_empty()).map(pair).collect::<io::Result<_>>()?,
        body: Vec::new(),
        // A peer does not expect the body of the response to HEAD, and would read it as the next response.
        keeps_open: head.method != Some("HEAD")
            && !all("Connection").any(|header| header.value.eq_ignore_ascii_case(b"close")),
    };
    Ok(Some((request, head_bytes, body_bytes)))
}

/// Decodes `%20` and the like.
fn decoded(text: &str) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        bytes.push(match byte {
            b'%' => match (digit(), digit()) {
                (Some(high), Some(low)) => u8::try_from(high << 4 | low).unwrap_or_default(),
                _ => return Err(invalid("the path or query is malformed")),
            },
            _ => byte,
        });
    }
    String::from_utf8(bytes).map_err(invalid)
}

fn invalid(reason: impl Into<Box<dyn core::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
