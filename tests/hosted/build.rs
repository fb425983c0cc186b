//! Writes the code of the guide `cookbook` to a file, for the target `scenarios`.
#![forbid(unsafe_code)]

use std::path::Path;
use std::{env, fs, io};

const GUIDE: &str = "../../core/client/src/guide/cookbook.md";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed={GUIDE}");
    let guide = fs::read_to_string(GUIDE)?;
    let blocks = guide.split("```").skip(1).step_by(2);
    let code: String = blocks.filter_map(|block| block.strip_prefix("rust,ignore\n")).collect();
    let folder = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    fs::write(Path::new(&folder).join("cookbook.rs"), code)
}
