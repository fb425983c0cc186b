use core::time::Duration;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use std::{env, fs, thread};

use super::scratch::{Scratch, pick_ports, sweep};
use super::{MongodOptions, MongodTls};

#[test]
fn scratch_folder_is_removed_with_its_value() {
    let scratch = Scratch::create().unwrap();
    let path = scratch.path().to_owned();
    assert!(scratch.data().is_dir());
    let other = Scratch::create().unwrap();
    assert_ne!(path, other.path());
    drop(scratch);
    assert!(!path.exists());
}

#[test]
fn ports_differ_within_a_process() {
    // None of them is bound meanwhile.
    let counts = [3, 1, 2].repeat(10);
    let mut ports: Vec<u16> =
        counts.iter().flat_map(|count| (pick_ports(*count).unwrap()..).take((*count).into())).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 60);
}

#[test]
fn arguments_follow_the_options() {
    let scratch = Scratch::create().unwrap();
    let options = MongodOptions {
        repl_set: Some("rs0".to_owned()),
        tls: Some(MongodTls {
            certificate_key_file: "server.pem".into(),
            ca_file: Some("ca.pem".into()),
            allow_without_certificate: true,
            required: false,
        }),
        parameters: vec![("logLevel".to_owned(), "1".to_owned())],
        args: vec!["--auth".into()],
    };
    let args = options.arguments(20_001, &scratch);
    let line = args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let wanted = [
        "--bind_ip 127.0.0.1 --port 20001 ",
        "--setParameter enableTestCommands=1 ",
        "--setParameter logLevel=1 ",
        "--replSet rs0 ",
        "--tlsMode preferTLS --tlsCertificateKeyFile server.pem --tlsCAFile ca.pem ",
        "--nounixsocket ",
    ];
    for part in wanted {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(line.ends_with(" --auth"));
}

/// Starts a process that waits for input that is never sent, with `argument` in its command line.
fn waiting_process(argument: &std::path::Path) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", "echo; read line", "sh"]).arg(argument).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // After its first output its command line can be read.
    let said = child.stdout.as_mut().unwrap().read(&mut [0]).unwrap();
    assert_eq!(said, 1);
    child
}

#[test]
fn only_remains_of_killed_processes_are_ended_and_removed() {
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let root = env::temp_dir().join(format!("poolhouse-sweep-{}", std::process::id()));
    let left = |number: u32, owner: u32| {
        let folder = root.join(format!("poolhouse-mongod-{owner}-{number}"));
        fs::create_dir_all(folder.join("data")).unwrap();
        folder
    };

    let orphaned = left(0, gone.id());
    let mut orphan = waiting_process(&orphaned.join("data"));
    fs::write(orphaned.join("pid"), orphan.id().to_string()).unwrap();
    // Its process has ended, and its id belongs to another process.
    let reused = left(1, gone.id());
    let mut bystander = waiting_process(std::path::Path::new("/elsewhere"));
    fs::write(reused.join("pid"), bystander.id().to_string()).unwrap();
    // Its owner, the parent of this process, is running.
    let owned = left(2, std::os::unix::process::parent_id());
    let foreign = root.join("other-folder");
    fs::create_dir_all(&foreign).unwrap();

    sweep(&root);

    let deadline = Instant::now() + Duration::from_secs(10);
    while orphan.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the orphan was not ended");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(bystander.try_wait().unwrap(), None);
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    assert!(!orphaned.exists());
    assert!(!reused.exists());
    assert!(owned.exists());
    assert!(foreign.exists());
    fs::remove_dir_all(&root).unwrap();
}
