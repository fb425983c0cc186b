//! The addresses at which a session reaches the nodes that a server names.

use crate::mux::options::{PORT_DEFAULT, SessionOptions, socket_address};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use poolhouse_core::observe::contain;

/// Converts the addresses that the node of the control connection names.
pub(super) struct Addresses<'a> {
    options: &'a SessionOptions,
    /// The port of a node that names none, or may not.
    port: u16,
}

impl<'a> Addresses<'a> {
    /// - `peer`: of the control connection; `None` for a Unix socket.
    pub(super) fn new(options: &'a SessionOptions, peer: Option<SocketAddr>) -> Self {
        Self { options, port: peer.map_or(PORT_DEFAULT, |peer| peer.port()) }
    }

    /// The address of a node. `None` if the session connects to no node there.
    pub(super) fn of(&self, ip: IpAddr, port: Option<u16>) -> Option<SocketAddr> {
        let port = port.filter(|_| self.options.node_ports).unwrap_or(self.port);
        let mut address = SocketAddr::new(ip.to_canonical(), port);
        // It is that of no node, and the application would take it for one.
        if address.ip().is_unspecified() {
            return None;
        }
        if let Some(translate) = &self.options.address_translator {
            address = contain(|| translate(address))?;
            address.set_ip(address.ip().to_canonical());
        }
        let is_contact_point = |is_kind: fn(IpAddr) -> bool| {
            let mut contacts = self.options.hosts.iter().filter_map(|host| socket_address(&host.address));
            contacts.any(|contact| is_kind(reached(contact.ip().to_canonical())))
        };
        let ip = reached(address.ip());
        let is_refused = |is_kind: fn(IpAddr) -> bool| is_kind(ip) && !is_contact_point(is_kind);
        let is_usable = !ip.is_unspecified() && !is_refused(is_link_local) && !is_refused(is_multicast);
        (is_usable && address.port() != 0).then_some(address)
    }
}

/// The IPv4 address that a translator of networks (NAT64) reaches for this one, if it has the prefix that all of them
/// know, `64:ff9b::/96`; otherwise the address.
fn reached(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = ip else { return ip };
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)).into(),
        _ => ip,
    }
}

/// Whether the address names another host on each network. The services of clouds that describe the machine, and may
/// have its secrets, are usually at such addresses; the others are those of Alibaba Cloud and of AWS. Clouds may have
/// more, and a service at any other address is not protected.
fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.octets() == [100, 100, 100, 200],
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.segments() == [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254],
    }
}

/// Whether the address is that of no single host.
fn is_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_multicast() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_multicast(),
    }
}
