//! The events of the commands of a guard.

use crate::client_core::ClientCore;
use crate::driven::Drive as _;
use crate::event::{CommandEvent, CommandStage, EventRef, Publish as _};
use crate::runtime::Runtime;
use crate::server::Server;
use poolhouse_core::Instant;
use poolhouse_core::observe::EventContext;
use poolhouse_core::pool::ConnId;
use poolhouse_wire::bson::RawDocument;
use poolhouse_wire::command::is_sensitive;
use poolhouse_wire::message::{Decoded, Limits, decode_message};

/// Publishes an event of a command, and wakes the readers.
///
/// - `request`: the message of the command.
/// - `operation_id`: 0 if the operation has none.
pub(super) fn publish<R: Runtime>(
    core: &ClientCore<R>,
    server: &Server<R>,
    (now, conn, operation_id): (Instant, ConnId, i64),
    request: &[u8],
    stage: CommandStage<'_>,
    reply: Option<RawDocument<'_>>,
) {
    let limits = Limits { message_bytes_max: u32::MAX, document_bytes_max: u32::MAX };
    let Ok(Decoded::Done { value: message, .. }) = decode_message(request, &limits) else { return };
    let (command, request_id) = (message.body(), message.header().request_id);
    let Some(Ok(first)) = command.iter().next() else { return };
    let known = server.known(conn);
    let document = match stage {
        CommandStage::Started => command,
        CommandStage::Succeeded { .. } | CommandStage::Failed { .. } => reply.unwrap_or(RawDocument::EMPTY),
    };
    let event = CommandEvent {
        stage,
        name: first.key,
        database: command.get("$db").ok().flatten().and_then(|name| name.as_str()).unwrap_or_default(),
        request_id,
        operation_id: if operation_id == 0 { request_id.into() } else { operation_id },
        address: server.address(),
        connection_id: conn.connection_id().get(),
        server_connection_id: known.and_then(|known| known.server_connection_id),
        service_id: known.and_then(|known| known.service_id),
        document: if is_sensitive(command) { RawDocument::EMPTY } else { document },
    };
    let context = EventContext::of_server(server.address());
    let _ = R::contain(|| server.events().publish_in(now, EventRef::Command(&event), &context));
    core.events().deliver();
}
