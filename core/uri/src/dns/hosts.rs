//! The hosts file of the system: names that need no server.
//!
//! Read first: the manual page of `hosts`.

use alloc::vec::Vec;
use core::net::IpAddr;

/// The most addresses of one name.
const ADDRESSES_MAX: usize = 64;

/// The addresses that a hosts file gives this name, each once, in their order; none if it does not know it.
///
/// Lines that are not understood are passed over. Capital letters make no difference.
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
