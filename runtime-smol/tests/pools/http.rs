//! HTTP/1.1 with connections that are kept alive, by the manager of the example. The server is this
//! program in another process.

#[path = "../../examples/pool_http.rs"]
#[expect(dead_code, reason = "main is not called")]
mod example;

use crate::pools::load;
use crate::pools::server::Server;
use core::net::Ipv4Addr;
use example::Http;
use poolhouse_smol::Pool;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;

/// The environment variable that turns this process into a server, with its port.
const PORT: &str = "POOLHOUSE_HTTP_PORT";

/// The number of requests after which the server closes a connection.
const REQUESTS: u32 = 50;

/// Returns the port, if this process must be a server.
pub(crate) fn requested_port() -> Option<u16> {
    std::env::var(PORT).ok()?.parse().ok()
}

/// Serves until the process is killed.
pub(crate) fn serve(port: u16) -> ! {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    loop {
        let (stream, _) = listener.accept().unwrap();
        // A client that goes away ends its thread.
        thread::spawn(move || answer(&stream));
    }
}

/// Answers each request with its path.
fn answer(mut stream: &TcpStream) -> io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    for number in 1..=REQUESTS {
        let Some(request) = lines.next().transpose()? else { return Ok(()) };
        while lines.next().transpose()?.is_some_and(|header| !header.is_empty()) {}
        let path = request.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
        let connection = if number == REQUESTS { "close" } else { "keep-alive" };
        let length = path.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: {connection}\r\n\r\n");
        stream.write_all((head + path).as_bytes())?;
    }
    Ok(())
}

pub(crate) fn loses_nothing() {
    let server = Server::start(|scratch, port| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(scratch.data()).env(PORT, port.to_string());
        command
    });
    let manager = Http { address: server.address() };
    load::loses_nothing("http", Pool::builder(manager), server, async |connection, text| {
        let response = connection.get(&format!("/{text}")).await?;
        if response.status != 200 {
            return Err(io::Error::other(format!("status {}", response.status)));
        }
        String::from_utf8(response.body).map_err(io::Error::other)
    });
}
