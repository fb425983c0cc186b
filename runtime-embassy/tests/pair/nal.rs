//! A client over the traits of embedded-nal-async, without embassy-net.

use super::net::run;
use super::support::{Log, Rig, eventually, options, ping, refused, seeds, server};
use async_io::Async;
use core::cell::{Cell, RefCell};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use embedded_io_async::{ErrorType, Read, Write};
use embedded_nal_async::{AddrType, Dns, TcpConnect};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use poolhouse_embassy::poolhouse_core::Cause;
use poolhouse_embassy::{Buffers, Client, Nal, OperationError, Options, Resources, Sizes};
use poolhouse_tests::fake::{Ended, FakeServer, Fault, FaultRule};
use std::io;
use std::net::TcpStream;

/// A modem whose sockets have their own memory: `SOCKET` is 0.
type Over = Sizes<1, 4, 8, 4096, 1024, 0, Log, 1, Nal<Modem>>;

/// A modem: sockets of the host. Whatever address is dialed, a fake server answers.
struct Modem {
    server: SocketAddr,
    /// Addresses that were dialed, and names that were resolved.
    dialed: RefCell<Vec<SocketAddr>>,
    names: RefCell<Vec<String>>,
    open: Cell<usize>,
}

struct Line<'a> {
    stream: Async<TcpStream>,
    modem: &'a Modem,
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.modem.open.set(self.modem.open.get() - 1);
    }
}

impl ErrorType for Line<'_> {
    type Error = io::Error;
}

impl Read for Line<'_> {
    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        AsyncReadExt::read(&mut self.stream, buf).await
    }
}

impl Write for Line<'_> {
    async fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        AsyncWriteExt::write(&mut self.stream, buf).await
    }

    async fn flush(&mut self) -> io::Result<()> {
        AsyncWriteExt::flush(&mut self.stream).await
    }
}

impl TcpConnect for Modem {
    type Error = io::Error;
    type Connection<'a> = Line<'a>;

    async fn connect<'a>(&'a self, remote: SocketAddr) -> io::Result<Line<'a>> {
        self.dialed.borrow_mut().push(remote);
        let stream = Async::<TcpStream>::connect(self.server).await?;
        self.open.set(self.open.get() + 1);
        Ok(Line { stream, modem: self })
    }
}

impl Dns for Modem {
    type Error = io::Error;

    async fn get_host_by_name(&self, host: &str, _: AddrType) -> io::Result<IpAddr> {
        self.names.borrow_mut().push(host.to_owned());
        if host == "db.example" { Ok(Ipv6Addr::LOCALHOST.into()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    async fn get_host_by_address(&self, _: IpAddr, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn modem(server: &FakeServer) -> &'static Modem {
    let (dialed, names, open) = (RefCell::default(), RefCell::default(), Cell::new(0));
    Box::leak(Box::new(Modem { server: server.address(), dialed, names, open }))
}

fn start(net: &super::net::Net, modem: &'static Modem, options: Options) -> Rig<Over> {
    let config = Box::leak(Box::new(options.validate().expect("the options are right")));
    let resources = Box::leak(Box::new(Resources::<Over>::new()));
    let buffers = Box::leak(Box::new(Buffers::new()));
    let log = Log::default();
    let (client, runner) =
        Client::with_events(resources, buffers, Nal(modem), config, log.clone()).expect("it can begin");
    let polls = net.spawn(async move { runner.run().await });
    Rig { client, log, polls }
}

#[test]
fn tasks_share_connections_of_a_modem() {
    run(async |net| {
        let server = server();
        let modem = modem(&server);
        let rig = start(net, modem, options(&server));
        let client = rig.client;
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                net.spawn_task(async move {
                    for _ in 0..20 {
                        ping(&client).await.expect("a ping");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        assert_eq!(server.count_of("ping"), 160);
        rig.at_rest(&server, 1).await;
        assert_eq!(modem.open.get(), server.open_count());
        assert!(modem.dialed.borrow().iter().all(|address| *address == server.address()));
        rig.end(&[&server]).await;
        assert_eq!(modem.open.get(), 0);
        server.look(|view| assert!(view.closed().all(|it| it.ended == Some(Ended::ByClient)), "all in order"));
    });
}

#[test]
fn client_of_a_modem_is_opened_again() {
    run(async |net| {
        let server = server();
        let modem = modem(&server);
        let rig = start(net, modem, options(&server));
        for _ in 0..10 {
            rig.ping().await.expect("a ping");
            rig.client.close();
            rig.client.closed().await;
            assert_eq!((rig.sockets_away(), modem.open.get()), (0, 0));
            rig.client.open().expect("it is closed");
        }
        rig.end(&[&server]).await;
    });
}

/// Lines are closed when their connections fail or are dropped in the middle of a handshake.
#[test]
fn failed_and_dropped_connections_leave_no_line_open() {
    run(async |net| {
        let server = server();
        let modem = modem(&server);
        let rig = start(net, modem, options(&server));
        rig.ping().await.expect("a ping");
        for _ in 0..10 {
            server.inject(FaultRule::once(Fault::Silence).on_command("ping"));
            let client = rig.client;
            let sent = net.spawn_task(async move { ping(&client).await });
            eventually("it is in use", || rig.pool().counts.in_use == 1).await;
            drop(sent);
            rig.ping().await.expect("over another line");
        }
        rig.at_rest(&server, 1).await;
        assert_eq!(modem.open.get(), server.open_count());
        rig.end(&[&server]).await;
        assert_eq!(modem.open.get(), 0);
    });
}

/// A dropped runner completes no close.
#[test]
fn dropped_runner_leaves_no_line_open() {
    run(async |net| {
        let server = server();
        let modem = modem(&server);
        let config = Box::leak(Box::new(options(&server).validate().expect("the options are right")));
        let resources = Box::leak(Box::new(Resources::<Over>::new()));
        let buffers = Box::leak(Box::new(Buffers::new()));
        let (client, runner) =
            Client::with_events(resources, buffers, Nal(modem), config, Log::default()).expect("it can begin");
        let running = net.spawn_task(async move { runner.run().await });
        ping(&client).await.expect("a ping");
        assert_eq!(modem.open.get(), server.open_count());
        drop(running);
        eventually("all lines are closed", || modem.open.get() == 0).await;
        refused(ping(&client).await);
    });
}

#[test]
fn hosts_are_resolved_by_the_modem() {
    run(async |net| {
        let server = server();
        for (seed, dialed, names) in [
            ("db.example:1234", "[::1]:1234", vec!["db.example".to_owned()]),
            ("[fd00::7]:1234", "[fd00::7]:1234", vec![]),
            ("10.0.0.7:1234", "10.0.0.7:1234", vec![]),
        ] {
            let modem = modem(&server);
            let rig = start(net, modem, Options { seeds: seeds(&[seed]), ..options(&server) });
            rig.ping().await.expect("a ping");
            assert!(modem.dialed.borrow().iter().all(|address| address.to_string() == dialed), "{seed}");
            assert!(modem.names.borrow().iter().all(|name| names.contains(name)), "{seed}");
            assert_eq!(modem.names.borrow().is_empty(), names.is_empty(), "{seed}");
            rig.end(&[&server]).await;
        }
        let modem = modem(&server);
        let unknown = Options {
            seeds: seeds(&["nowhere.example"]),
            server_selection_timeout: Duration::from_millis(50),
            ..options(&server)
        };
        let rig = start(net, modem, unknown);
        assert!(matches!(refused(rig.ping().await), OperationError::ServerSelection(_)));
        assert_eq!(rig.log.heartbeat_failures().first(), Some(&Cause::Dns));
        assert!(modem.dialed.borrow().is_empty());
        rig.end(&[]).await;
    });
}
