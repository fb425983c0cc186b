//! Converts the tests' extended JSON to inputs of a topology.

use crate::reply::Lists;
use poolhouse_core::topology::{AppError, AppErrorKind, CommandError, HandshakePhase, ReplyError};
use poolhouse_core::{ObjectId, TopologyVersion};
use poolhouse_wire::hello::HelloReply;
use serde_json::Value;

/// Reads the lists of a reply from its JSON.
pub(super) fn lists(reply: &Value) -> Lists {
    let texts = |key| {
        let texts = reply.get(key).and_then(Value::as_array).into_iter().flatten();
        texts.filter_map(Value::as_str).collect::<Vec<_>>()
    };
    let tags = reply.get("tags").and_then(Value::as_object).into_iter().flatten();
    let tags: Vec<_> = tags.filter_map(|(name, value)| Some((name, value.as_str()?))).collect();
    Lists::new(&texts("hosts"), &texts("passives"), &texts("arbiters"), &tags)
}

/// Returns whether `ok` is 1.
pub(super) fn is_ok(reply: &Value) -> bool {
    let ok = reply.get("ok");
    matches!(int64(ok), Ok(Some(1))) || ok.and_then(Value::as_f64) == Some(1.0) || ok == Some(&Value::Bool(true))
}

/// Reads a hello reply.
pub(super) fn hello<'a>(reply: &'a Value, lists: &'a Lists) -> Result<HelloReply<'a>, String> {
    let flag = |key: &str| reply.get(key).and_then(Value::as_bool);
    let text = |key: &str| reply.get(key).and_then(Value::as_str);
    Ok(lists.of(HelloReply {
        is_writable_primary: flag("isWritablePrimary").or_else(|| flag("ismaster")).unwrap_or(false),
        secondary: flag("secondary").unwrap_or(false),
        arbiter_only: flag("arbiterOnly").unwrap_or(false),
        hidden: flag("hidden").unwrap_or(false),
        is_replica_set: flag("isreplicaset").unwrap_or(false),
        is_db_grid: text("msg") == Some("isdbgrid"),
        is_cryptd: flag("iscryptd").unwrap_or(false),
        set_name: text("setName"),
        set_version: int64(reply.get("setVersion"))?,
        election_id: oid(reply.get("electionId"))?,
        me: text("me"),
        primary: text("primary"),
        min_wire_version: int32(reply.get("minWireVersion"))?.unwrap_or(0),
        max_wire_version: int32(reply.get("maxWireVersion"))?.unwrap_or(0),
        last_write_date_ms: date(reply.get("lastWrite").and_then(|write| write.get("lastWriteDate")))?,
        logical_session_timeout_minutes: int32(reply.get("logicalSessionTimeoutMinutes"))?,
        topology_version: topology_version(reply.get("topologyVersion"))?,
        ..HelloReply::OK
    }))
}

/// Reads an error of an application.
pub(super) fn app_error(
    error: &Value,
    phase: HandshakePhase,
    generation: u64,
    pool_generation: u64,
) -> Result<AppError<'_>, String> {
    let kind = match error.get("type").and_then(Value::as_str) {
        Some("network") => AppErrorKind::Network,
        Some("timeout") => AppErrorKind::NetworkTimeout,
        Some("command") => AppErrorKind::Command(command(error.get("response").ok_or("an error has no response")?)?),
        other => return Err(format!("an error has the type {other:?}")),
    };
    // As a pool does: network errors of the first part of a handshake are labelled.
    let overloaded =
        phase == HandshakePhase::Before && matches!(kind, AppErrorKind::Network | AppErrorKind::NetworkTimeout);
    Ok(AppError { generation, pool_generation, phase, kind, overloaded, service_id: None })
}

fn command(reply: &Value) -> Result<CommandError<'_>, String> {
    Ok(CommandError {
        command: if is_ok(reply) { None } else { Some(reply_error(reply)?) },
        write_concern: reply.get("writeConcernError").map(reply_error).transpose()?,
        topology_version: topology_version(reply.get("topologyVersion"))?,
    })
}

fn reply_error(error: &Value) -> Result<ReplyError<'_>, String> {
    let message = error.get("errmsg").and_then(Value::as_str).unwrap_or("");
    Ok(ReplyError { code: int32(error.get("code"))?, message })
}

/// Reads a 64-bit integer, plain or as extended JSON.
pub(super) fn int64(value: Option<&Value>) -> Result<Option<i64>, String> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    let number = match value.as_object() {
        None => value.as_i64(),
        Some(_) => ["$numberLong", "$numberInt"]
            .iter()
            .find_map(|key| value.get(key).and_then(Value::as_str).and_then(|text| text.parse().ok())),
    };
    number.map(Some).ok_or_else(|| format!("{value} is not an integer"))
}

/// Reads a 32-bit integer, plain or as extended JSON.
pub(super) fn int32(value: Option<&Value>) -> Result<Option<i32>, String> {
    match int64(value)? {
        Some(number) => i32::try_from(number).map(Some).map_err(|error| error.to_string()),
        None => Ok(None),
    }
}

fn date(value: Option<&Value>) -> Result<Option<i64>, String> {
    int64(value.map(|value| value.get("$date").unwrap_or(value)))
}

/// Reads an ObjectId as extended JSON.
pub(super) fn oid(value: Option<&Value>) -> Result<Option<ObjectId>, String> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    let text = value.get("$oid").and_then(Value::as_str).ok_or_else(|| format!("{value} is not an ObjectId"))?;
    let mut bytes = [0; 12];
    if text.len() != 24 {
        return Err(format!("{text} is not an ObjectId"));
    }
    for (place, byte) in bytes.iter_mut().enumerate() {
        let digits = text.get(2 * place..2 * place + 2).unwrap_or("");
        *byte = u8::from_str_radix(digits, 16).map_err(|error| format!("{text}: {error}"))?;
    }
    Ok(Some(ObjectId(bytes)))
}

/// Reads a topologyVersion.
pub(super) fn topology_version(value: Option<&Value>) -> Result<Option<TopologyVersion>, String> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    let process_id = oid(value.get("processId"))?.ok_or("a topologyVersion has no processId")?;
    let counter = int64(value.get("counter"))?.ok_or("a topologyVersion has no counter")?;
    Ok(Some(TopologyVersion { process_id, counter }))
}
