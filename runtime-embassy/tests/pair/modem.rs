//! The driver of the firmware's modem, over a modem in memory: nothing that it sends, and no future that is dropped,
//! stops the driver or mixes up the bytes of connections.

#[path = "../../firmware/modem/src/at.rs"]
mod at;
#[path = "../../firmware/modem/src/links.rs"]
mod links;

use self::at::Driver;
use self::links::{LINKS, Modem};
use super::net::{Net, run};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::convert::Infallible;
use core::future::poll_fn;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::task::{Poll, Waker};
use core::time::Duration;
use embassy_time::{Timer, with_timeout};
use embedded_io_async::{ErrorKind, ErrorType, Read, Write};
use embedded_nal_async::{AddrType, Dns, TcpConnect};
use futures_lite::future::poll_once;
use poolhouse_tests::rng::Rng;
use poolhouse_tests::seeds::each_seed;

const ECHO: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7);
/// What a modem without reason may send, besides random bytes.
const NOISE: [&[u8]; 22] = [
    b"OK\r\n",
    b"ERROR\r\n",
    b"SEND OK\r\n",
    b"SEND FAIL\r\n",
    b"busy p...\r\n",
    b"ready\r\n",
    b">",
    b"\r\n",
    b"+IPD,0,5\r\n",
    b"+IPD,1,99999999999999999999\r\n",
    b"+IPD,7,1\r\n",
    b"+IPD,\r\n",
    b"0,CLOSED\r\n",
    b"1,CLOSED\r\n",
    b"18446744073709551615,CLOSED\r\n",
    b"-1,CLOSED\r\n",
    b"+CIPRECVDATA:3,abc\r\nOK\r\n",
    b"+CIPRECVDATA:257,",
    b"+CIPRECVDATA:18446744073709551616,",
    b"+CIPRECVDATA:,",
    b"+CIPDOMAIN:\"999.0.0.1\"\r\n",
    &[b'x'; 300],
];

/// A modem all of whose connections lead to an echo.
struct Echo {
    rng: Rng,
    /// Reads in which it sends noise.
    noise: usize,
    /// Whether it also leaves commands unanswered.
    is_unreliable: bool,
    /// Whether it has the commands of later versions.
    is_later: bool,
    /// Whether it keeps received bytes until it is asked for them.
    is_passive: bool,
    /// Whether the next answer with bytes has no head.
    loses_head: bool,
    command: Vec<u8>,
    /// The link and the number of bytes that it waits for.
    sending: Option<(usize, usize)>,
    links: [Option<VecDeque<u8>>; LINKS],
    output: VecDeque<u8>,
    reader: Option<Waker>,
}

#[derive(Clone)]
struct Line(Rc<RefCell<Echo>>);

impl Echo {
    fn send(&mut self, text: impl AsRef<[u8]>) {
        self.output.extend(text.as_ref());
    }

    fn receive(&mut self, byte: u8) {
        self.command.push(byte);
        if let Some((index, count)) = self.sending {
            if self.command.len() == count {
                self.sending = None;
                let bytes = core::mem::take(&mut self.command);
                if let Some(link) = &mut self.links[index] {
                    link.extend(bytes);
                }
                self.send(format!("Recv {count} bytes\r\n\r\nSEND OK\r\n+IPD,{index},{count}\r\n"));
            }
        } else if byte == b'\n' {
            let command = core::mem::take(&mut self.command);
            if !self.is_unreliable || !self.rng.next_u64().is_multiple_of(4) {
                // After noise, bytes for a connection are sent to a modem that waits for a command.
                self.execute(String::from_utf8_lossy(&command).trim());
            }
        }
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn execute(&mut self, command: &str) {
        let (name, parameters) = command.split_once('=').unwrap_or((command, ""));
        let mut parameters = parameters.split(',');
        // Commands for no link have other parameters.
        let index = parameters.next().and_then(|index| index.parse().ok()).filter(|index| *index < LINKS).unwrap_or(0);
        let link = &mut self.links[index];
        match name {
            "" => {}
            "AT+RST" => {
                self.links = Default::default();
                self.is_passive = false;
                self.send("OK\r\nready\r\n");
            }
            "AT+CIPRECVMODE" if !self.is_later => {
                self.is_passive = true;
                self.send("OK\r\n");
            }
            "AT+CIPRECVTYPE" if self.is_later => {
                self.is_passive = parameters.next() == Some("1");
                self.send("OK\r\n");
            }
            "ATE0" | "AT+CIPMUX" => self.send("OK\r\n"),
            "AT+CIPDOMAIN" => self.send("+CIPDOMAIN:\"127.0.0.1\"\r\nOK\r\n"),
            "AT+CIPSTART" if link.is_none() && self.is_passive => {
                *link = Some(VecDeque::new());
                self.send(format!("{index},CONNECT\r\nOK\r\n"));
            }
            "AT+CIPSEND" if link.is_some() => {
                let count = parameters.next().and_then(|count| count.parse().ok()).expect("a length");
                self.sending = Some((index, count));
                self.send("OK\r\n>");
            }
            "AT+CIPRECVDATA" if link.as_ref().is_some_and(|link| !link.is_empty()) => {
                let count = parameters.next().and_then(|count| count.parse().ok()).expect("a length");
                let link = link.as_mut().expect("there is one");
                let bytes: Vec<u8> = link.drain(..link.len().min(count)).collect();
                if !core::mem::take(&mut self.loses_head) {
                    self.send(format!("+CIPRECVDATA:{},", bytes.len()));
                }
                self.send(bytes);
                self.send("\r\nOK\r\n");
            }
            "AT+CIPCLOSE" if link.is_some() => {
                *link = None;
                self.send(format!("{index},CLOSED\r\nOK\r\n"));
            }
            _ => self.send("ERROR\r\n"),
        }
    }

    fn make_noise(&mut self) {
        let random = self.rng.next_u64().to_le_bytes();
        let known = NOISE.get(usize::from(random[0]) % (NOISE.len() + 4));
        self.send(known.copied().unwrap_or(&random));
    }
}

impl ErrorType for Line {
    type Error = Infallible;
}

impl Read for Line {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        poll_fn(|context| {
            let mut echo = self.0.borrow_mut();
            if echo.noise > 0 {
                echo.noise -= 1;
                echo.make_noise();
            }
            let count = echo.output.len().min(buf.len());
            if count == 0 {
                echo.reader = Some(context.waker().clone());
                return Poll::Pending;
            }
            buf.iter_mut().zip(echo.output.drain(..count)).for_each(|(to, byte)| *to = byte);
            Poll::Ready(Ok(count))
        })
        .await
    }
}

impl Write for Line {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, Infallible> {
        buf.iter().for_each(|byte| self.0.borrow_mut().receive(*byte));
        Ok(buf.len())
    }

    async fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

fn start(net: &Net, seed: u64) -> (&'static Modem, Line) {
    let line = Line(Rc::new(RefCell::new(Echo {
        rng: Rng::new(seed),
        noise: 0,
        is_unreliable: false,
        is_later: seed.is_multiple_of(2),
        is_passive: false,
        loses_head: false,
        command: Vec::new(),
        sending: None,
        links: Default::default(),
        output: VecDeque::new(),
        reader: None,
    })));
    let modem: &'static Modem = Box::leak(Box::new(Modem::new()));
    let driver = Driver::new(modem, line.clone());
    net.spawn(async move {
        driver.run().await;
    });
    (modem, line)
}

/// Sends bytes, and receives the same.
async fn exchange(modem: &Modem, bytes: &[u8]) -> Result<(), ErrorKind> {
    let mut connection = modem.connect(ECHO).await?;
    let mut received = vec![0; bytes.len()];
    for (sent, received) in bytes.chunks(700).zip(received.chunks_mut(700)) {
        connection.write_all(sent).await?;
        connection.read_exact(received).await.map_err(|_| ErrorKind::ConnectionReset)?;
    }
    assert_eq!(received, bytes);
    Ok(())
}

/// Bytes that differ from those of other users.
fn pattern(user: u32, length: u32) -> Vec<u8> {
    (0..length).map(|it| ((it + 50 * user) % 251).to_le_bytes()[0]).collect()
}

#[test]
fn answer_without_its_count_restarts_the_modem() {
    run(async |net| {
        let (modem, line) = start(net, 1);
        net.jump(Duration::from_secs(1)).await;
        exchange(modem, &pattern(0, 100)).await.expect("it is reliable");
        line.0.borrow_mut().loses_head = true;
        // The bytes are digits, which no line of the modem consists of.
        assert_eq!(exchange(modem, b"0123456789").await, Err(ErrorKind::ConnectionReset));
        net.jump(Duration::from_secs(1)).await;
        exchange(modem, &pattern(0, 100)).await.expect("it is reliable again");
    });
}

#[test]
fn reads_that_are_dropped_lose_no_bytes() {
    run(async |net| {
        let (modem, _line) = start(net, 1);
        net.jump(Duration::from_secs(1)).await;
        let mut connection = modem.connect(ECHO).await.expect("a connection");
        let bytes = pattern(0, 2000);
        let mut received = Vec::new();
        let mut dropped = 0;
        for sent in bytes.chunks(20) {
            connection.write_all(sent).await.expect("it is sent");
            let until = received.len() + sent.len();
            while received.len() < until {
                let mut buffer = [0; 7];
                match poll_once(connection.read(&mut buffer)).await {
                    Some(count) => received.extend_from_slice(&buffer[..count.expect("it is open")]),
                    None => {
                        dropped += 1;
                        futures_lite::future::yield_now().await;
                    }
                }
            }
        }
        assert_eq!(received, bytes);
        assert!(dropped >= 100, "{dropped} reads were dropped");
    });
}

/// Whenever a future is dropped: before its command, during it, or afterwards.
#[test]
fn futures_that_are_dropped_leave_no_link_in_use() {
    run(async |net| {
        let (modem, line) = start(net, 1);
        net.jump(Duration::from_secs(1)).await;
        for polls in 1..40 {
            let task = net.spawn_task(async { exchange(modem, &pattern(0, 100)).await });
            let name = net.spawn_task(async { modem.get_host_by_name("echo.test", AddrType::IPv4).await });
            for _ in 0..polls {
                futures_lite::future::yield_now().await;
            }
            drop((task, name));
        }
        net.jump(Duration::from_secs(1)).await;
        assert!(line.0.borrow().links.iter().all(Option::is_none));
        let tasks =
            [0, 1, 2, 3, 4].map(|user| net.spawn_task(async move { exchange(modem, &pattern(user, 5000)).await }));
        assert_eq!(tasks.len(), LINKS);
        for task in tasks {
            assert_eq!(task.await, Ok(()));
        }
        let found = modem.get_host_by_name("echo.test", AddrType::IPv4).await;
        assert_eq!(found, Ok(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(modem.get_host_by_name("a\",\"b", AddrType::IPv4).await, Err(ErrorKind::NotFound));
    });
}

/// Users connect, exchange bytes and drop their futures while the modem sends noise and leaves commands unanswered.
/// Each of their futures ends. When the modem is reliable again, so are its connections.
#[test]
fn modem_that_sends_anything_is_usable_afterwards() {
    // Each takes some 0.3 seconds.
    each_seed(4, |seed| {
        run(async move |net| {
            let (modem, line) = start(net, seed);
            let is_over = Rc::new(Cell::new(false));
            let users: Vec<_> = (1..=LINKS as u64)
                .map(|user| {
                    let is_over = Rc::clone(&is_over);
                    net.spawn_task(async move {
                        while !is_over.get() {
                            let limit = embassy_time::Duration::from_millis(user * 700);
                            // Bytes of noise differ: only an exchange that ends is checked.
                            let _ = with_timeout(limit, async {
                                let address = modem.get_host_by_name("echo.test", AddrType::IPv4).await?;
                                let mut connection = modem.connect(SocketAddr::new(address, 7)).await?;
                                connection.write_all(&pattern(0, 300)).await?;
                                connection.read(&mut [0; 100]).await
                            })
                            .await;
                            Timer::after_millis(50).await;
                        }
                    })
                })
                .collect();
            line.0.borrow_mut().is_unreliable = true;
            for _ in 0..100 {
                line.0.borrow_mut().noise = 20;
                net.jump(Duration::from_millis(300)).await;
            }
            line.0.borrow_mut().is_unreliable = false;
            line.0.borrow_mut().noise = 0;
            is_over.set(true);
            for user in users {
                net.jump(Duration::from_secs(10)).await;
                user.await;
            }
            let mut attempts = 0;
            while exchange(modem, &pattern(0, 1000)).await.is_err() {
                attempts += 1;
                assert!(attempts < 5, "seed {seed}: the modem is not usable");
                net.jump(Duration::from_secs(10)).await;
            }
            modem.closed().await;
        });
    });
}
