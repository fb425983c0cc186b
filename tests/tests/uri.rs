//! The official tests of connection strings, their options and credentials: a case per test, named
//! folder/file/description. Set `POOLHOUSE_SPEC_DIR`.

use core::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use poolhouse_tests::fuzz;
use poolhouse_tests::spec;
use poolhouse_tests::suite::Suite;
use poolhouse_uri::{ConnectionString, Credential, HostKind, OptionValue, Pairs};
use serde_json::{Map, Value};

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Runs a case.
type Check = fn(&Value) -> Outcome;

/// The folders, and the comparison of their cases.
const FOLDERS: [(&str, &str, Check); 3] = [
    ("connection-string", "connection-string/tests", options_case),
    ("uri-options", "uri-options/tests", options_case),
    ("auth", "auth/tests/legacy", credential_case),
];

/// Cases from when MONGODB-AWS took its credential from the string. Since 2025-09-30 it must not,
/// which the same file also states for strings of the same form: so the opposite is expected of
/// these.
const SUPERSEDED: [&str; 2] = [
    "should use username and password if specified (MONGODB-AWS)",
    "should use username, password and session token if specified (MONGODB-AWS)",
];

/// Cases that expect a warning for a wrong value of a TLS option. Here the wrong value is an error
/// that contains the option: a client that ignored the option would connect with other protection
/// than the string requires. Without `tlsInsecure=treu` no TLS option is left, so the connection
/// would not even be encrypted.
const UNSAFE: [(&str, &str); 3] = [
    ("Invalid tlsAllowInvalidCertificates causes a warning", "tlsAllowInvalidCertificates"),
    ("Invalid tlsAllowInvalidHostnames causes a warning", "tlsAllowInvalidHostnames"),
    ("Invalid tlsInsecure causes a warning", "tlsInsecure"),
];

fn main() -> ExitCode {
    let mut suite = Suite::new("uri");
    for (name, folder, check) in FOLDERS {
        match spec::files(folder) {
            Err(reason) => suite = suite.missing(name, reason),
            Ok(files) => {
                for (file, path) in files {
                    suite = add(suite, &format!("{name}/{file}"), &path, check);
                }
            }
        }
    }
    suite.run()
}

/// Adds the cases of a file; a file that cannot be read is a case that fails.
fn add(mut suite: Suite, prefix: &str, path: &Path, check: Check) -> Suite {
    let cases = match read(path) {
        Ok(cases) => cases,
        Err(error) => {
            let error = error.to_string();
            return suite.case(prefix, move || Err::<(), _>(error));
        }
    };
    if cases.is_empty() {
        suite = suite.case(prefix, || Err::<(), _>("the file contains no case"));
    }
    for case in cases {
        let name = format!("{prefix}/{}", case["description"].as_str().unwrap_or("without description"));
        suite = suite.case(name, move || check(&case));
    }
    suite
}

fn read(path: &Path) -> Result<Vec<Value>, Box<dyn Error>> {
    let mut file: Value = serde_json::from_slice(&fs::read(path)?)?;
    Ok(file["tests"].as_array_mut().map(core::mem::take).ok_or("tests is no list")?)
}

/// A case of connection-string or uri-options: null is not compared.
fn options_case(case: &Value) -> Outcome {
    let description = text(case, "description");
    if let Some((_, option)) = UNSAFE.iter().find(|(name, _)| description == Some(name)) {
        return match ConnectionString::parse(text(case, "uri").ok_or("no uri")?) {
            Ok(uri) => Err(format!("accepted as {uri}").into()),
            Err(error) => same("the option of the error", &error.option(), &Some(*option)),
        };
    }
    let Some(uri) = parsed(case)? else { return Ok(()) };
    if let Some(warning) = case["warning"].as_bool() {
        let found = uri.warnings();
        same("a warning", &!found.is_empty(), &warning).map_err(|error| format!("{error} ({found:?})"))?;
    }
    if let Some(hosts) = case["hosts"].as_array() {
        let found: Vec<_> =
            uri.hosts().iter().map(|host| (kind(host.kind()), host.name(), host.port().map(u64::from))).collect();
        let wanted: Vec<_> = hosts
            .iter()
            .map(|host| {
                (host["type"].as_str().unwrap_or(""), host["host"].as_str().unwrap_or(""), host["port"].as_u64())
            })
            .collect();
        same("the hosts", &found, &wanted)?;
    }
    let auth = &case["auth"];
    if !auth.is_null() {
        let credential = uri.credential();
        let username = credential.and_then(|credential| credential.username.as_deref());
        same("the username", &username, &text(auth, "username"))?;
        same("the password", &password(credential), &text(auth, "password"))?;
        same("the database", &uri.database(), &text(auth, "db"))?;
    }
    for (name, wanted) in case["options"].as_object().unwrap_or(&Map::new()) {
        let name = name.as_str();
        let found = uri.options().iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let found = found.ok_or_else(|| format!("{name} is missing"))?;
        same(name, &shown(found.1), wanted)?;
    }
    Ok(())
}

/// A case of auth: null means that the value must be absent; an absent key is not compared.
fn credential_case(case: &Value) -> Outcome {
    if case["description"].as_str().is_some_and(|description| SUPERSEDED.contains(&description)) {
        return match ConnectionString::parse(text(case, "uri").ok_or("no uri")?) {
            Ok(_) => Err("a credential of AWS was accepted".into()),
            Err(_) => Ok(()),
        };
    }
    let Some(uri) = parsed(case)? else { return Ok(()) };
    let wanted = match case.get("credential") {
        None => return Ok(()),
        Some(Value::Null) => return same("a credential", &uri.credential(), &None),
        Some(wanted) => wanted,
    };
    let credential = uri.credential().ok_or("no credential")?;
    for (name, wanted) in wanted.as_object().ok_or("the credential is not an object")? {
        let found = match name.as_str() {
            "username" => credential.username.as_deref().into(),
            "password" => password(Some(credential)).into(),
            "source" => credential.source.as_str().into(),
            "mechanism" => credential.mechanism.map(|mechanism| mechanism.name()).into(),
            "mechanism_properties" if credential.properties.is_empty() => Value::Null,
            "mechanism_properties" => object(&credential.properties),
            other => return Err(format!("unknown key {other} of a credential").into()),
        };
        same(name, &found, wanted)?;
    }
    Ok(())
}

/// The string of a case, parsed; `None` if an error was expected and returned.
fn parsed(case: &Value) -> Result<Option<ConnectionString>, Box<dyn Error + Send + Sync>> {
    let uri = text(case, "uri").ok_or("no uri")?;
    fuzz::uri(uri.as_bytes());
    match (ConnectionString::parse(uri), case["valid"].as_bool().ok_or("no valid")?) {
        (Ok(uri), true) => Ok(Some(uri)),
        (Err(_), false) => Ok(None),
        (Ok(uri), false) => Err(format!("accepted as {uri}").into()),
        (Err(error), true) => Err(error.into()),
    }
}

fn same<T: PartialEq + core::fmt::Debug>(what: &str, found: &T, wanted: &T) -> Outcome {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:?}, not {wanted:?}").into()) }
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value[key].as_str()
}

fn password(credential: Option<&Credential>) -> Option<&str> {
    credential.and_then(|credential| credential.password.as_ref()).map(|password| password.expose())
}

const fn kind(kind: HostKind) -> &'static str {
    match kind {
        HostKind::Name => "hostname",
        HostKind::Ipv4 => "ipv4",
        HostKind::Ipv6 => "ip_literal",
        HostKind::Unix => "unix",
    }
}

/// A value in the format of the files.
fn shown(value: OptionValue<'_>) -> Value {
    match value {
        OptionValue::Bool(value) => value.into(),
        OptionValue::Number(number) => number.into(),
        OptionValue::Text(text) => text.into(),
        OptionValue::Secret(secret) => secret.expose().into(),
        OptionValue::Compressors(list) => list.iter().map(|compressor| compressor.name()).collect(),
        OptionValue::Pairs(pairs) => object(pairs),
        OptionValue::TagSets(sets) => sets.iter().map(object).collect(),
        other => format!("{other:?}").into(),
    }
}

fn object(pairs: &Pairs) -> Value {
    Value::Object(pairs.iter().map(|(name, value)| (name.to_owned(), value.into())).collect())
}
