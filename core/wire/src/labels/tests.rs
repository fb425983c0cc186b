use alloc::format;
use alloc::vec::Vec;

use super::*;
use crate::CertificateFault;

const PHASES: [Phase; 5] = [Phase::Connect, Phase::Proxy, Phase::Tls, Phase::Hello, Phase::Authentication];
const CAUSES: [Cause; 13] = [
    Cause::Network,
    Cause::NetworkTimeout,
    Cause::Dns,
    Cause::Certificate(CertificateFault::Expired),
    Cause::Protocol,
    Cause::Command { code: 91 },
    Cause::Authentication,
    Cause::MissingServiceId,
    Cause::Interrupted,
    Cause::Cancelled,
    Cause::Closed,
    Cause::Forked,
    Cause::Resources,
];

/// Every phase with every cause.
#[test]
#[doc(alias("CMAP-95", "CMAP-96", "CMAP-97", "CMAP-98"))]
fn both_labels_exactly_for_network_failures_up_to_hello() {
    let both = Labels::SYSTEM_OVERLOADED_ERROR | Labels::RETRYABLE_ERROR;
    for phase in PHASES {
        for cause in CAUSES {
            let due = matches!(phase, Phase::Connect | Phase::Tls | Phase::Hello)
                && matches!(cause, Cause::Network | Cause::NetworkTimeout);
            let expected = if due { both } else { Labels::NONE };
            assert_eq!(Labels::for_establishment(phase, cause), expected, "{phase:?} {cause:?}");
        }
    }
}

#[test]
fn each_name_maps_to_its_label_and_back() {
    for (label, name) in NAMES {
        assert_eq!(Labels::from_name(name), label);
        assert_eq!(label.names().collect::<Vec<_>>(), [name]);
    }
    assert_eq!(Labels::from_name("retryableerror"), Labels::NONE);
    assert_eq!(Labels::from_name(""), Labels::NONE);
}

#[test]
fn sets_unite_and_contain() {
    let mut set = Labels::default();
    assert!(set.is_empty());
    set |= Labels::RETRYABLE_ERROR;
    set |= Labels::NO_WRITES_PERFORMED;
    assert!(set | set == set && set.union(set) == set);
    assert!(set.contains(Labels::RETRYABLE_ERROR) && set.contains(Labels::NONE) && !set.is_empty());
    assert!(!set.contains(Labels::RETRYABLE_ERROR | Labels::SYSTEM_OVERLOADED_ERROR));
    assert_eq!(format!("{set:?}"), r#"{"RetryableError", "NoWritesPerformed"}"#);
}
