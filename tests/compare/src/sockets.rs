//! The connections of processes, as the system has them.

use core::net::{Ipv4Addr, SocketAddr};
use std::collections::HashMap;

/// Established connections: the peer of each socket, which has a number.
pub(crate) type Sockets = HashMap<u64, SocketAddr>;

/// The connections of all processes.
pub(crate) fn all() -> Sockets {
    const ESTABLISHED: &str = "01";
    /// What precedes an IPv4 address in IPv6, which Java uses.
    const MAPPED: &str = "0000000000000000FFFF0000";
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let connections = tables.iter().flat_map(|table| table.lines()).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, peer, ESTABLISHED, _, _, _, _, _, socket, ..] = fields[..] else { return None };
        let (ip, port) = peer.trim_start_matches(MAPPED).split_once(':')?;
        // As the table has it: the bytes of the address from the last to the first.
        let ip = Ipv4Addr::from(u32::from_str_radix(ip, 16).ok()?.to_le_bytes());
        Some((socket.parse().ok()?, SocketAddr::from((ip, u16::from_str_radix(port, 16).ok()?))))
    });
    connections.collect()
}

/// Those of one process.
pub(crate) fn of(process: u32, all: &Sockets) -> Sockets {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let sockets = links.filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
    sockets.filter_map(|socket| Some((socket, *all.get(&socket)?))).collect()
}
