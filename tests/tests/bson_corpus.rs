//! The official BSON corpus: a case per file, named after it. Set `POOLHOUSE_SPEC_DIR`.

use core::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use poolhouse_tests::fuzz;
use poolhouse_tests::spec;
use poolhouse_tests::suite::Suite;
use poolhouse_wire::bson::{DocumentWriter, RawDocument};
use serde_json::Value;

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let suite = Suite::new("bson_corpus");
    match spec::files("bson-corpus/tests") {
        Err(reason) => suite.skip_if(Some(reason)).case("corpus", || ()).run(),
        Ok(files) => files.into_iter().fold(suite, |suite, (name, path)| suite.case(name, move || file(&path))).run(),
    }
}

fn file(path: &Path) -> Outcome {
    let test: Value = serde_json::from_slice(&fs::read(path)?)?;
    let mut count = 0;
    for case in list(&test, "valid") {
        for key in ["canonical_bson", "degenerate_bson"] {
            if let Some(hex) = case.get(key) {
                accepted(&bytes(hex)?).map_err(|error| format!("{}, {key}: {error}", case["description"]))?;
                count += 1;
            }
        }
        shown(case).map_err(|error| format!("{}, as JSON: {error}", case["description"]))?;
    }
    for case in list(&test, "decodeErrors") {
        let bytes = bytes(&case["bson"])?;
        fuzz::wire(&bytes);
        if RawDocument::new(&bytes).and_then(RawDocument::validate).is_ok() {
            return Err(format!("{} was accepted", case["description"]).into());
        }
        count += 1;
    }
    // Files with only parse errors concern extended JSON.
    if count == 0 && list(&test, "parseErrors").next().is_none() {
        return Err("the file contains no case".into());
    }
    Ok(())
}

/// A valid document is accepted, and encoding its elements again produces the same bytes.
fn accepted(bytes: &[u8]) -> Outcome {
    let document = RawDocument::new(bytes)?;
    document.validate()?;
    let mut again = Vec::new();
    DocumentWriter::write(&mut again, |writer| {
        for element in document {
            let Ok(element) = element else { continue };
            writer.value(element.key, element.value)?;
        }
        Ok(())
    })?;
    if again != bytes {
        return Err("writing the elements again results in other bytes".into());
    }
    fuzz::wire(bytes);
    Ok(())
}

/// The relaxed JSON of a document is the file's relaxed extended JSON. If the file has none, it is
/// the canonical form, provided that it contains no number.
fn shown(case: &Value) -> Outcome {
    let text = |key: &str| case.get(key).and_then(Value::as_str);
    let is_same = |text: &&str| !["$numberInt", "$numberLong", "$numberDouble"].iter().any(|key| text.contains(key));
    let Some(expected) = text("relaxed_extjson").or_else(|| text("canonical_extjson").filter(is_same)) else {
        return Ok(());
    };
    let expected: Value = serde_json::from_str(expected)?;
    let bytes = bytes(&case["canonical_bson"])?;
    let text = RawDocument::new(&bytes)?.relaxed_json().to_string();
    let found: Value = serde_json::from_str(&text).map_err(|error| format!("{error} in {text}"))?;
    if found == expected { Ok(()) } else { Err(format!("expected {expected}, found {found}").into()) }
}

fn list<'a>(test: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    test.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn bytes(hex: &Value) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    let hex = hex.as_str().ok_or("no text")?;
    (0..hex.len()).step_by(2).map(|at| Ok(u8::from_str_radix(hex.get(at..at + 2).ok_or("odd")?, 16)?)).collect()
}
