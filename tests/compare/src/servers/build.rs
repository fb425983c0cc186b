//! Builds the clients, each by the ordinary tool of its language, below the folder of this program.

use crate::clients::libmongoc;
use crate::process::output;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A client of this program itself.
pub(super) fn own(name: &str) -> Result<Vec<OsString>, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(vec![this.into(), "peer".into(), name.into()])
}

pub(super) fn c(name: &str) -> Result<Vec<OsString>, String> {
    let program = target()?.join(format!("c-{name}"));
    libmongoc::compile(&format!("peers/c/{name}.c"), &program)?;
    Ok(vec![program.into()])
}

pub(super) fn go(name: &str) -> Result<Vec<OsString>, String> {
    let program = target()?.join(format!("go-{name}"));
    let mut command = Command::new("go");
    output(command.current_dir(sources("go")).args(["build", "-o"]).arg(&program).arg(format!("./{name}")))?;
    Ok(vec![program.into()])
}

pub(super) fn java(class: &str) -> Result<Vec<OsString>, String> {
    let (jars, classes) = (target()?.join("jars"), target()?.join("classes"));
    let (pom, copy) = (sources("java").join("pom.xml"), jars.join("pom.xml"));
    let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    if read(&copy).ok() != Some(read(&pom)?) {
        let _ = std::fs::remove_dir_all(&jars);
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "--strict-checksums", "-f"]).arg(&pom).arg("dependency:copy-dependencies");
        output(maven.arg(format!("-DoutputDirectory={}", jars.display())))?;
        // Copied last: without it, the folder is incomplete.
        std::fs::copy(&pom, &copy).map_err(|error| error.to_string())?;
    }
    let path = format!("{}/*:{}", jars.display(), classes.display());
    let mut compiler = Command::new("javac");
    compiler.current_dir(sources("java")).arg("-d").arg(&classes).args(["-cp", &path, "Peer.java"]);
    output(compiler.arg(format!("{class}.java")))?;
    Ok(vec!["java".into(), "-cp".into(), path.into(), class.into()])
}

pub(crate) fn python(name: &str) -> Result<Vec<OsString>, String> {
    let folder = target()?.join("venv");
    let interpreter = folder.join("bin/python");
    if !interpreter.exists() {
        output(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    }
    let requirements = sources("python").join("requirements.txt");
    output(
        Command::new(&interpreter)
            .args(["-m", "pip", "install", "-q", "--only-binary", ":all:", "--require-hashes", "-r"])
            .arg(requirements),
    )?;
    Ok(vec![interpreter.into(), sources("python").join(format!("{name}.py")).into()])
}

fn sources(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(language)
}

/// The folder of what is built here.
fn target() -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = this.parent().ok_or("the path of this program has no parent folder")?.join("peers");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    Ok(folder)
}
