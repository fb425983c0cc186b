//! Files of the CMAP format, parsed strictly: an unknown field is an error and never skipped.

use core::time::Duration;
use poolhouse_core::pool::PoolOptions;
use serde_json::{Map, Value};

/// The eleven event types, by their names in the files.
const EVENT_TYPES: [&str; 11] = [
    "ConnectionPoolCreated",
    "ConnectionPoolReady",
    "ConnectionPoolCleared",
    "ConnectionPoolClosed",
    "ConnectionCreated",
    "ConnectionReady",
    "ConnectionClosed",
    "ConnectionCheckOutStarted",
    "ConnectionCheckOutFailed",
    "ConnectionCheckedOut",
    "ConnectionCheckedIn",
];

/// One file.
#[derive(Clone, Debug)]
pub struct Test {
    /// Purpose of the test.
    pub description: String,
    /// The mock server's treatment of a `hello`.
    pub fail_point: FailPoint,
    /// The options of the pool.
    pub options: PoolOptions,
    /// The operations, in order.
    pub operations: Vec<Operation>,
    /// The error with which the main thread must end.
    pub error: Option<Value>,
    /// The expected events, in order.
    pub events: Vec<Value>,
    /// Types of events that are ignored in the comparison.
    pub ignore: Vec<String>,
}

/// An operation and the thread that runs it; `None` is the thread that issues it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The thread to whose queue it is appended.
    pub thread: Option<String>,
    /// The operation.
    pub kind: OperationKind,
}

/// The kinds of operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// Creates a thread.
    Start(String),
    /// Sleeps.
    Wait(Duration),
    /// Waits until a thread has no operation left, and takes over its error.
    WaitForThread(String),
    /// Waits until `count` events of a type were published since the start.
    WaitForEvent {
        /// The type of event.
        event: String,
        /// The number of events.
        count: usize,
        /// The time limit.
        timeout: Option<Duration>,
    },
    /// Checks out a connection and stores it under the label.
    CheckOut(Option<String>),
    /// Returns the connection with this label.
    CheckIn(String),
    /// Clears the pool.
    Clear {
        /// The flag of the same name.
        interrupt_in_use_connections: bool,
    },
    /// Marks the pool ready.
    Ready,
    /// Closes the pool.
    Close,
}

/// The treatment of a `hello`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailPoint {
    /// Number of `hello`s that are answered normally first.
    pub skip: u64,
    /// Number of `hello`s that are affected after that; `None` is no limit.
    pub times: Option<u64>,
    /// Delay of the reply.
    pub block: Duration,
    /// Replacement of a successful reply.
    pub fault: Option<Fault>,
}

/// Replacement of a successful reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Closes the connection: a network error during `hello`, which is labelled as overload.
    CloseConnection,
    /// A command error, which clears the pool unless it is labelled as overload.
    Error {
        /// Its code.
        code: i32,
        /// Whether it has the label `SystemOverloadedError`.
        overloaded: bool,
    },
}

impl Test {
    /// Parses a file.
    ///
    /// # Errors
    ///
    /// The unsupported part and its position.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
        let mut file = Fields::new("the file", &value)?;
        if file.take("version").and_then(Value::as_u64) != Some(1) {
            return Err("version is not 1".into());
        }
        match file.string("style")? {
            "unit" | "integration" => {}
            other => return Err(format!("unknown style {other:?}")),
        }
        // The mock server supports every version.
        let _ = file.take("runOn");
        let test = Self {
            description: file.string("description")?.into(),
            fail_point: file.take("failPoint").map_or(Ok(FailPoint::default()), fail_point)?,
            options: file.take("poolOptions").map_or(Ok(PoolOptions::DEFAULT), pool_options)?,
            operations: file.list("operations")?.iter().map(operation).collect::<Result<_, _>>()?,
            error: file.take("error").filter(|error| !error.is_null()).cloned(),
            events: file.list("events")?.to_vec(),
            ignore: file.list("ignore")?.iter().map(event_type).collect::<Result<_, _>>()?,
        };
        file.end()?;
        for event in &test.events {
            event_type(&event["type"]).map_err(|error| format!("in events: {error}"))?;
        }
        Ok(test)
    }
}

fn operation(value: &Value) -> Result<Operation, String> {
    let mut fields = Fields::new("an operation", value)?;
    let name = fields.string("name")?;
    let thread = fields.optional_string("thread")?;
    let kind = match name {
        "start" => OperationKind::Start(fields.string("target")?.into()),
        "wait" => OperationKind::Wait(Duration::from_millis(fields.number("ms")?)),
        "waitForThread" => OperationKind::WaitForThread(fields.string("target")?.into()),
        "waitForEvent" => OperationKind::WaitForEvent {
            event: event_type(fields.take("event").unwrap_or(&Value::Null))?,
            count: usize::try_from(fields.number("count")?).map_err(|error| error.to_string())?,
            timeout: fields.optional_number("timeout")?.map(Duration::from_millis),
        },
        "checkOut" => OperationKind::CheckOut(fields.optional_string("label")?),
        "checkIn" => OperationKind::CheckIn(fields.string("connection")?.into()),
        "clear" => OperationKind::Clear { interrupt_in_use_connections: fields.flag("interruptInUseConnections")? },
        "ready" => OperationKind::Ready,
        "close" => OperationKind::Close,
        other => return Err(format!("unknown operation {other:?}")),
    };
    fields.end().map_err(|error| format!("{name}: {error}"))?;
    Ok(Operation { thread, kind })
}

fn event_type(value: &Value) -> Result<String, String> {
    match value.as_str() {
        Some(name) if EVENT_TYPES.contains(&name) => Ok(name.into()),
        _ => Err(format!("unknown event type {value}")),
    }
}

fn pool_options(value: &Value) -> Result<PoolOptions, String> {
    let mut fields = Fields::new("poolOptions", value)?;
    let mut options = PoolOptions::DEFAULT;
    let count = |number: u64| u32::try_from(number).map_err(|_| format!("{number} connections are too many"));
    if let Some(number) = fields.optional_number("maxPoolSize")? {
        options.max_pool_size = count(number)?;
    }
    if let Some(number) = fields.optional_number("minPoolSize")? {
        options.min_pool_size = count(number)?;
    }
    if let Some(number) = fields.optional_number("maxConnecting")? {
        options.max_connecting = count(number)?;
    }
    // Zero means no limit.
    let limit = |number: Option<u64>| number.filter(|number| *number > 0).map(Duration::from_millis);
    options.max_idle_time = limit(fields.optional_number("maxIdleTimeMS")?);
    options.wait_queue_timeout = limit(fields.optional_number("waitQueueTimeoutMS")?);
    // Only its sign matters: the state machine does background work when it is due, not
    // periodically.
    if let Some(interval) = fields.take("backgroundThreadIntervalMS") {
        let interval = interval.as_i64().ok_or("backgroundThreadIntervalMS is not an integer")?;
        options.background = interval >= 0;
    }
    // It exempts the monitor's connection from a fail point; this runner has no monitor.
    fields.optional_string("appName")?;
    fields.end()?;
    Ok(options)
}

fn fail_point(value: &Value) -> Result<FailPoint, String> {
    let mut fields = Fields::new("failPoint", value)?;
    match fields.string("configureFailPoint")? {
        "failCommand" => {}
        other => return Err(format!("unknown fail point {other:?}")),
    }
    let mut point = FailPoint { times: Some(0), ..FailPoint::default() };
    match fields.take("mode") {
        Some(Value::String(mode)) if mode == "alwaysOn" => point.times = None,
        Some(Value::String(mode)) if mode == "off" => {}
        Some(mode @ Value::Object(_)) => {
            let mut mode = Fields::new("mode", mode)?;
            let (skip, times) = (mode.optional_number("skip")?, mode.optional_number("times")?);
            mode.end()?;
            if skip.is_none() && times.is_none() {
                return Err("a mode without times and skip".into());
            }
            point.skip = skip.unwrap_or(0);
            point.times = times;
        }
        other => return Err(format!("unknown mode {other:?}")),
    }
    if let Some(data) = fields.take("data") {
        fail_point_data(&mut point, data)?;
    }
    fields.end()?;
    Ok(point)
}

fn fail_point_data(point: &mut FailPoint, data: &Value) -> Result<(), String> {
    let mut data = Fields::new("data", data)?;
    let commands = data.list("failCommands")?;
    // No other command is sent while a connection is established.
    if !commands.iter().any(|name| matches!(name.as_str(), Some("hello" | "isMaster" | "ismaster"))) {
        point.times = Some(0);
    }
    let block_time = data.optional_number("blockTimeMS")?;
    if data.flag("blockConnection")? {
        point.block = Duration::from_millis(block_time.ok_or("blockConnection without blockTimeMS")?);
    }
    let overloaded = data.list("errorLabels")?.iter().any(|label| label == "SystemOverloadedError");
    if let Some(code) = data.take("errorCode") {
        let code =
            code.as_i64().and_then(|code| i32::try_from(code).ok()).ok_or("errorCode is not a 32-bit integer")?;
        point.fault = Some(Fault::Error { code, overloaded });
    }
    if data.flag("closeConnection")? {
        point.fault = Some(Fault::CloseConnection);
    }
    data.optional_string("appName")?;
    data.end()
}

/// The fields of an object, each taken once; fields that remain at the end are unsupported.
struct Fields<'a> {
    what: &'static str,
    map: &'a Map<String, Value>,
    taken: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    fn new(what: &'static str, value: &'a Value) -> Result<Self, String> {
        let map = value.as_object().ok_or_else(|| format!("{what} is not an object: {value}"))?;
        Ok(Self { what, map, taken: Vec::new() })
    }

    fn take(&mut self, name: &'static str) -> Option<&'a Value> {
        self.taken.push(name);
        self.map.get(name)
    }

    fn string(&mut self, name: &'static str) -> Result<&'a str, String> {
        let what = self.what;
        self.take(name).and_then(Value::as_str).ok_or_else(|| format!("{what} requires a string {name}"))
    }

    fn optional_string(&mut self, name: &'static str) -> Result<Option<String>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(format!("{name} is not a string: {other}")),
        }
    }

    fn number(&mut self, name: &'static str) -> Result<u64, String> {
        let what = self.what;
        self.optional_number(name)?.ok_or_else(|| format!("{what} requires a number {name}"))
    }

    /// An integer, plain or in extended JSON.
    fn optional_number(&mut self, name: &'static str) -> Result<Option<u64>, String> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let extended = ["$numberInt", "$numberLong"].iter().find_map(|key| value.get(key)?.as_str()?.parse().ok());
        match value.as_u64().or(extended) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("{name} is not an integer of at least 0: {value}")),
        }
    }

    /// An absent flag is false.
    fn flag(&mut self, name: &'static str) -> Result<bool, String> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(format!("{name} is not a boolean: {other}")),
        }
    }

    /// An absent list is empty.
    fn list(&mut self, name: &'static str) -> Result<&'a [Value], String> {
        match self.take(name) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(format!("{name} is not a list: {other}")),
        }
    }

    fn end(self) -> Result<(), String> {
        match self.map.keys().find(|key| !self.taken.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => Err(format!("{} has an unknown field: {key:?}", self.what)),
        }
    }
}
