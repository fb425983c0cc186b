//! The hosts file of the system: names that are resolved without a server.
//!
//! Read first: the manual page of `hosts`.

use alloc::vec::Vec;
use core::net::IpAddr;

/// Maximum number of addresses of a name.
const ADDRESSES_MAX: usize = 64;

/// The addresses of a name in a hosts file, without duplicates, in order; empty if the name is not
/// listed.
///
/// Invalid lines are ignored. Names are compared case-insensitively.
///
/// Cost: linear in the text.
#[must_use]
pub fn hosts_addresses(text: &str, host: &str) -> Vec<IpAddr> {
    let host = host.strip_suffix('.').unwrap_or(host);
    let mut addresses = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else { continue };
        if words.any(|name| name.eq_ignore_ascii_case(host)) && !addresses.contains(&address) {
            addresses.push(address);
            if addresses.len() == ADDRESSES_MAX {
                break;
            }
        }
    }
    addresses
}
