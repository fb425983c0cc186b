use super::*;
use crate::AuthError;

/// Programs decide by the cause. The reason is text for people to read, so equality ignores it.
#[test]
fn reasons_do_not_affect_the_equality_of_errors() {
    let (one, other) = (Reason::new(Cause::Network), Reason::new(AuthError::Ended));
    assert_eq!(one, other);
    assert_eq!(one, Reason::NONE);
}

#[cfg(feature = "alloc")]
#[test]
fn reason_contains_the_error_and_its_text() {
    use alloc::string::ToString;
    let reason = Reason::new(AuthError::Ended);
    assert_eq!(reason.to_string(), AuthError::Ended.to_string());
    let error = reason.clone().source().and_then(|error| error.downcast_ref().copied());
    assert_eq!(error, Some(AuthError::Ended));
    assert!(!reason.is_none());
    assert_eq!((Reason::NONE.to_string().as_str(), Reason::NONE.is_none()), ("", true));
    assert_eq!(size_of::<Reason>(), size_of::<usize>());
}
